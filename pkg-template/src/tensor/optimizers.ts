// What changes parameters by their gradients, on the GPU: a step reads nothing and writes nothing from JavaScript, so it may be a part of a plan.

import { isA, isArray, reading } from '../arguments.js';
import { EngineError, textOf } from '../errors.js';
import type { Device } from '../gpu/device.js';
import { flag, number, options } from '../gpu/operations/arguments.js';
import { Tensor } from '../gpu/tensor.js';
import type { Schedule } from './schedules.js';

/** What all optimizers take. */
export interface OptimizerOptions {
  /** The learning rate. Default: 0.001. */
  lr?: number | undefined;
  /** What the learning rate is multiplied with, step by step. Default: 1. */
  schedule?: Schedule | undefined;
}

/** What {@link SGD} takes. */
export interface SGDOptions extends OptimizerOptions {
  /** The part of the last change that goes on. Default: 0. */
  momentum?: number | undefined;
  /** Nesterov's momentum. Default: false. */
  nesterov?: boolean | undefined;
  /** Each gradient grows by this part of its parameter. Default: 0. */
  weightDecay?: number | undefined;
}

/** What {@link Adam} and {@link AdamW} take. */
export interface AdamOptions extends OptimizerOptions {
  /** How much of the running means of gradients and of their squares stays. Default: [0.9, 0.999]. */
  betas?: readonly [number, number] | undefined;
  /** Added to the root of the mean of squares. Default: 1e-8. */
  eps?: number | undefined;
  /** Of `Adam`: each gradient grows by this part of its parameter; 0 by default. Of `AdamW`: each parameter shrinks by this part; 0.01 by default. */
  weightDecay?: number | undefined;
}

/**
 * Changes parameters by their gradients.
 *
 * ```js
 * const adam = new AdamW([w, b], { lr: 0.01, schedule: cosineSchedule({ steps: 1000 }) });
 * const step = await device.plan(() => {
 *   const loss = x.matmul(w).add(b).crossEntropy(labels);
 *   loss.backward();
 *   adam.step();
 *   adam.zeroGrad();
 *   return loss;
 * });
 * step.replay(); // the next step
 * ```
 */
export abstract class Optimizer implements Disposable {
  readonly parameters: readonly Tensor[];

  /** @internal */
  protected readonly device: Device;
  #rate: Tensor;
  #done: Tensor;
  #schedule: Schedule | undefined;
  #states: Tensor[] = [];

  /** @internal */
  protected constructor(parameters: readonly Tensor[], what: string, { lr = 1e-3, schedule }: OptimizerOptions) {
    const [first] = checked(parameters, what);
    for (const [index, parameter] of parameters.entries()) {
      if (first.device.tape.isLeaf(parameter)) continue;
      const why = parameter.requiresGrad ? 'was computed from others, and gets no gradient of its own' : 'does not require a gradient';
      throw new EngineError('invalid_request', `${what}: parameter ${index} ${why}; call detach() of it if need be, and requireGrad()`);
    }
    if (schedule !== undefined && typeof schedule !== 'function') {
      throw new EngineError('invalid_request', `${what}: schedule is a function, got ${textOf(schedule)}`);
    }
    this.parameters = [...parameters];
    this.device = first.device;
    this.#schedule = schedule;
    const rate = positive(lr, `${what}: lr`);
    // In memory, which a plan reads: a number would be a part of its commands.
    this.#rate = this.device.tidy(() => this.device.full([], rate).clone());
    this.#states.push(this.#rate);
    this.#done = this.state([]);
  }

  /**
   * Changes each parameter that has a gradient. May be part of a plan.
   */
  step(): void {
    this.#check('step');
    this.device.noGrad(() =>
      this.device.tidy(() => {
        // What can fail comes before the first change.
        const gradients = this.parameters.map((parameter) => parameter.grad);
        const rate = this.#schedule === undefined ? this.#rate : this.#scheduled(this.#schedule);
        this.#done.assign(this.#done.add(1));
        this.begin();
        for (const [index, parameter] of this.parameters.entries()) {
          const gradient = gradients[index];
          if (gradient !== undefined) this.change(index, parameter, gradient, rate);
        }
      }),
    );
  }

  /** {@link Tensor.zeroGrad} of each parameter. */
  zeroGrad(): void {
    for (const parameter of this.parameters) parameter.zeroGrad();
  }

  /** Another learning rate from now on, also for the replays of plans. */
  setLearningRate(lr: number): void {
    this.#check('setLearningRate');
    this.#rate.assign(positive(lr, 'setLearningRate: the rate'));
  }

  /** Frees what it keeps on the GPU. The parameters stay. */
  dispose(): void {
    for (const state of this.#states) state.dispose();
  }

  /** {@link Optimizer.dispose}, for `using`. */
  [Symbol.dispose](): void {
    this.dispose();
  }

  #check(what: string): void {
    if (!this.#rate.disposed) return;
    throw new EngineError('disposed', `${what}: the optimizer was disposed of, or the tidy() in which it was made has ended`);
  }

  #scheduled(schedule: Schedule): Tensor {
    const rate = this.#rate.mul(schedule(this.#done));
    if (rate.size === 1) return rate.reshape([]);
    throw new EngineError('shape_mismatch', `schedule: a tensor of one element is wanted, got the shape [${rate.shape.join(', ')}]`);
  }

  /** Once in a step, before parameters change. @internal */
  protected begin(): void {}

  /** @internal */
  protected abstract change(index: number, parameter: Tensor, gradient: Tensor, rate: Tensor): void;

  /** Zeros that the optimizer keeps. @internal */
  protected state(shape: readonly number[]): Tensor {
    const state = this.device.zeros(shape);
    this.#states.push(state);
    return state;
  }

  /** One for each parameter. @internal */
  protected states(): Tensor[] {
    return this.parameters.map(({ shape }) => this.state(shape));
  }
}

/** Stochastic gradient descent, with momentum (Polyak 1964; Sutskever et al. 2013). As PyTorch's `SGD`. */
export class SGD extends Optimizer {
  #momentum: number;
  #nesterov: boolean;
  #decay: number;
  #changes: Tensor[] = [];

  constructor(parameters: readonly Tensor[], given?: SGDOptions) {
    const {
      momentum = 0,
      nesterov = false,
      weightDecay = 0,
      ...common
    } = options(given, 'SGD', [...COMMON, 'momentum', 'nesterov', 'weightDecay']);
    // All options are checked before anything is made on the GPU.
    const settings = [part(momentum, 'SGD: momentum'), flag(nesterov, 'SGD: nesterov'), positive(weightDecay, 'SGD: weightDecay')] as const;
    if (nesterov && momentum === 0) throw new EngineError('invalid_request', 'SGD: nesterov wants a momentum');
    super(parameters, 'SGD', common);
    [this.#momentum, this.#nesterov, this.#decay] = settings;
    if (momentum > 0) this.#changes = this.states();
  }

  /** @internal */
  protected override change(index: number, parameter: Tensor, gradient: Tensor, rate: Tensor): void {
    const decayed = this.#decay === 0 ? gradient : gradient.add(parameter.mul(this.#decay));
    const kept = this.#changes[index];
    const change = kept?.assign(kept.mul(this.#momentum).add(decayed)) ?? decayed;
    const ahead = this.#nesterov ? decayed.add(change.mul(this.#momentum)) : change;
    parameter.assign(parameter.sub(ahead.mul(rate)));
  }
}

/** Adam (Kingma, Ba 2014). As PyTorch's `Adam`. */
export class Adam extends Optimizer {
  #betas: readonly [number, number];
  #eps: number;
  #decay: number;
  #decoupled: boolean;
  #means: Tensor[];
  #squares: Tensor[];
  // What the running means, which begin at 0, have of what they would have: 1 − beta to the power of the number of steps.
  #reached: [Tensor, Tensor];

  constructor(parameters: readonly Tensor[], given?: AdamOptions) {
    const [betas, eps, decay] = adam(given, 'Adam', 0);
    super(parameters, 'Adam', commonOf(given, 'Adam'));
    [this.#betas, this.#eps, this.#decay, this.#decoupled] = [betas, eps, decay, false];
    [this.#means, this.#squares, this.#reached] = [this.states(), this.states(), [this.state([]), this.state([])]];
  }

  /** @internal */
  protected decouple(decay: number): void {
    [this.#decay, this.#decoupled] = [decay, true];
  }

  /** @internal */
  protected override begin(): void {
    for (const at of [0, 1] as const) this.#reached[at].assign(this.#reached[at].mul(this.#betas[at]).add(1 - this.#betas[at]));
  }

  /** @internal */
  protected override change(index: number, parameter: Tensor, gradient: Tensor, rate: Tensor): void {
    const [mean, square] = [this.#means[index]!, this.#squares[index]!];
    const decayed = this.#decoupled || this.#decay === 0 ? gradient : gradient.add(parameter.mul(this.#decay));
    mean.assign(mean.mul(this.#betas[0]).add(decayed.mul(1 - this.#betas[0])));
    square.assign(square.mul(this.#betas[1]).add(decayed.mul(decayed).mul(1 - this.#betas[1])));
    const [reachedMean, reachedSquare] = this.#reached;
    const spread = square.div(reachedSquare).sqrt().add(this.#eps);
    const change = mean.div(reachedMean).div(spread).mul(rate);
    const kept = this.#decoupled && this.#decay > 0 ? parameter.sub(parameter.mul(rate.mul(this.#decay))) : parameter;
    parameter.assign(kept.sub(change));
  }
}

/** Adam with decoupled weight decay (Loshchilov, Hutter 2017). As PyTorch's `AdamW`. */
export class AdamW extends Adam {
  constructor(parameters: readonly Tensor[], given?: AdamOptions) {
    const { weightDecay = 0.01, ...others } = options(given, 'AdamW', ADAM);
    const decay = positive(weightDecay, 'AdamW: weightDecay');
    super(parameters, others);
    this.decouple(decay);
  }
}

/**
 * Scales the gradients of parameters together, so that the norm of all of them is at most `maxNorm`; Infinity leaves them as they are. Returns the norm
 * from before. As PyTorch's `clip_grad_norm_`.
 */
export function clipGradNorm(parameters: readonly Tensor[], maxNorm: number): Tensor {
  const [{ device }] = checked(parameters, 'clipGradNorm');
  if (maxNorm !== Number.POSITIVE_INFINITY) positive(maxNorm, 'clipGradNorm: maxNorm');
  return device.noGrad(() =>
    device.tidy(() => {
      const graded = parameters.flatMap((parameter) => {
        const gradient = parameter.grad;
        return gradient === undefined ? [] : [{ parameter, gradient }];
      });
      const squares = graded.map(({ gradient }) => gradient.cast('f32').pow(2).sum());
      const norm = squares.reduce((sum, square) => sum.add(square), device.zeros([])).sqrt();
      const factor = device.full([], maxNorm).div(norm.add(1e-6)).minimum(1);
      for (const { parameter, gradient } of graded) parameter.grad = gradient.mul(factor).cast(parameter.dtype);
      return norm;
    }),
  );
}

const COMMON = ['lr', 'schedule'] as const;
const ADAM = [...COMMON, 'betas', 'eps', 'weightDecay'] as const;

function commonOf(given: AdamOptions | undefined, what: string): OptimizerOptions {
  const { lr, schedule } = options(given, what, ADAM);
  return { lr, schedule };
}

function adam(given: AdamOptions | undefined, what: string, decay: number): [readonly [number, number], number, number] {
  const { betas = [0.9, 0.999], eps = 1e-8, weightDecay = decay } = options(given, what, ADAM);
  if (!isArray(betas) || betas.length !== 2)
    throw new EngineError('invalid_request', `${what}: betas are two numbers, got ${textOf(betas)}`);
  const [first, second] = reading(`the betas of ${what}`, () => [...betas] as unknown[]);
  return [
    [part(first, `${what}: a beta`), part(second, `${what}: a beta`)],
    positive(eps, `${what}: eps`),
    positive(weightDecay, `${what}: weightDecay`),
  ];
}

function checked(parameters: readonly Tensor[], what: string): readonly [Tensor, ...Tensor[]] {
  // `every` passes over holes, of which an array may have billions.
  const isWhole = isArray(parameters) && parameters.length > 0 && Object.keys(parameters).length >= parameters.length;
  if (!isWhole || !reading(what, () => parameters.every((parameter) => isA(parameter, Tensor)))) {
    throw new EngineError('invalid_request', `${what}: an array of at least one tensor is wanted, got ${textOf(parameters)}`);
  }
  const known = new Map<Tensor, number>();
  for (const [index, parameter] of parameters.entries()) {
    if (parameter.device !== parameters[0]!.device)
      throw new EngineError('wrong_device', `${what}: parameter ${index} is on another device than parameter 0`);
    if (known.has(parameter))
      throw new EngineError(
        'invalid_request',
        `${what}: parameter ${index} is parameter ${known.get(parameter)} again, and would change twice`,
      );
    known.set(parameter, index);
  }
  return parameters as unknown as readonly [Tensor, ...Tensor[]];
}

function positive(value: unknown, what: string): number {
  // On the GPU it has 32 bits.
  if (!(number(value, what) >= 0 && Math.fround(value as number) < Number.POSITIVE_INFINITY)) {
    throw new EngineError('out_of_range', `${what} is a number from 0 to 3.4e38, got ${textOf(value)}`);
  }
  return value as number;
}

function part(value: unknown, what: string): number {
  if (!(number(value, what) >= 0 && (value as number) < 1))
    throw new EngineError('out_of_range', `${what} is from 0 to below 1, got ${textOf(value)}`);
  return value as number;
}
