// Learning rates that change from step to step, computed on the GPU from the number of steps so that a plan's replays change them too.

import { isA } from '../arguments.js';
import { EngineError, textOf } from '../errors.js';
import { number, options, whole } from '../gpu/operations/arguments.js';
import { Tensor } from '../gpu/tensor.js';

/** The factor of a learning rate, of the number of steps that were done: both tensors of one element. */
export type Schedule = (step: Tensor) => Tensor;

/** From 1 along half a cosine to `to`, by default 0, within this number of steps; then it stays (Loshchilov, Hutter 2016). */
export function cosineSchedule(given: { steps: number; to?: number | undefined }): Schedule {
  const { steps, to = 0 } = options(given, 'cosineSchedule', ['steps', 'to']);
  const [count, end] = [stepsOf(steps, 'cosineSchedule'), number(to, 'cosineSchedule: to')];
  return (step) =>
    tensor(step, 'cosineSchedule')
      .minimum(count)
      .mul(Math.PI / count)
      .cos()
      .add(1)
      .mul((1 - end) / 2)
      .add(end);
}

/** From `from`, by default 1, along a line to `to`, by default 0, within this number of steps; then it stays. */
export function linearSchedule(given: { steps: number; from?: number | undefined; to?: number | undefined }): Schedule {
  const { steps, from = 1, to = 0 } = options(given, 'linearSchedule', ['steps', 'from', 'to']);
  const [count, start, end] = [stepsOf(steps, 'linearSchedule'), number(from, 'linearSchedule: from'), number(to, 'linearSchedule: to')];
  return (step) =>
    tensor(step, 'linearSchedule')
      .minimum(count)
      .mul((end - start) / count)
      .add(start);
}

function tensor(step: unknown, what: string): Tensor {
  if (!isA(step, Tensor)) throw new EngineError('invalid_request', `${what}: the number of steps is a Tensor, got ${textOf(step)}`);
  return step;
}

function stepsOf(steps: unknown, what: string): number {
  if (whole(steps, `${what}: steps`) < 1) throw new EngineError('invalid_request', `${what}: steps is at least 1, got ${textOf(steps)}`);
  return steps as number;
}
