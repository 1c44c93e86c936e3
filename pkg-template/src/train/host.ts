// What a host does with the wasm that trains: converts, and refuses a wasm that can't.

import { EngineError, errorData, toEngineError } from '../errors.js';
import type { TrainingPlan } from '../generated/training.js';
import type { TrainedData, TrainingEventData } from '../protocol.js';
import type { Wasm, WasmEngine, WasmTrained } from '../wasm.js';

/** What is aborted while an engine gets what trains. */
export const ENABLING = 'loading what trains';

/** What an adapter is called that is trained without a name, as the wasm names it. */
export const TRAINED = 'trained';

/** The error of an engine that can't train yet. */
export function cannotTrain(): EngineError {
  return new EngineError(
    'invalid_request',
    'the engine was loaded without what trains: call engine.train.enable() first, or load it with Engine.load(model, { training: true })',
  );
}

export function planOf({ planLora }: Wasm, engine: WasmEngine, training: object): TrainingPlan {
  if (planLora === undefined) throw cannotTrain();
  return planLora(engine, training);
}

export async function trainedBy(
  { trainLora }: Wasm,
  engine: WasmEngine,
  training: object,
  checkpoint: Blob | undefined,
  onEvent: (event: TrainingEventData) => void,
  stopped: Promise<void>,
): Promise<WasmTrained> {
  if (trainLora === undefined) throw cannotTrain();
  return trainLora(
    engine,
    training,
    checkpoint,
    (event, bytes) => onEvent(bytes === undefined ? event : ({ ...event, bytes } as TrainingEventData)),
    stopped,
  );
}

export function trainedData({ adapter, unloaded, losses, heldOut, gguf, peft, unsaved }: WasmTrained): TrainedData {
  return {
    adapter: adapter ?? errorData(toEngineError(unloaded)),
    losses,
    heldOut,
    gguf: new Blob([gguf]),
    peft: peft?.map(([name, bytes]) => ({ name, data: new Blob([bytes]) })) ?? errorData(toEngineError(unsaved)),
  };
}
