// What is said of trainings, and what they tell. Types only.

import type { EngineError } from '../errors.js';
import type { LoadProgress } from '../files/progress.js';
import type { LoadedAdapter } from '../generated/loading.js';
import type { HeldOutLoss, LoraTraining, TrainingPlan, TrainingStep } from '../generated/training.js';
import type { ChatMessage, Tool } from '../messages.js';

export type {
  CheckpointOptions,
  HeldOutLoss,
  LoraTraining,
  Schedule,
  TrainingMemory,
  TrainingPlan,
  TrainingStep,
} from '../generated/training.js';

/** A text, all of which is learnt, or a chat, of which what the assistant says is learnt. */
export type TrainingExample =
  | string
  | { text: string }
  | {
      messages: ChatMessage[];
      tools?: Tool[] | undefined;
      chat_template_kwargs?: Record<string, unknown> | undefined;
    };

/** What a training tells on its way. */
export type TrainingEvent =
  /** Before anything is computed: what it is going to do, and the memory that it takes. */
  | ({ type: 'begin' } & TrainingPlan)
  /** It goes on from a checkpoint after that number of steps. */
  | { type: 'resumed'; step: number }
  /** After each step. */
  | ({ type: 'step' } & TrainingStep)
  /** Before the first step and after each epoch, if something is held out. */
  | ({ type: 'held_out' } & HeldOutLoss)
  /** The state after this step is kept, or could not be; the training goes on. */
  | { type: 'checkpoint'; step: number; error?: EngineError };

/** How an engine gets what trains. */
export interface EnableOptions {
  /** Called with the bytes loaded, many times. */
  onProgress?: ((progress: LoadProgress) => void) | undefined;
  /** Aborting it rejects with code `aborted`. What was given up for it by then is loaded as it was. */
  signal?: AbortSignal | undefined;
}

/** How an adapter is trained. */
export interface LoraOptions extends LoraTraining {
  /** Called for what the training tells. */
  onProgress?: ((event: TrainingEvent) => void) | undefined;
  /** Aborting it rejects with code `aborted`, also in the middle of a step. The engine stays as it was, and so does a checkpoint. */
  signal?: AbortSignal | undefined;
  /**
   * Go on from the checkpoint that is kept by the adapter's name, if there is one, as if the training had never ended. One of other data, other
   * settings or another model is refused. Default: false.
   */
  resume?: boolean | undefined;
}

/** An adapter that was trained. */
export interface TrainedAdapter {
  /** What requests call it. */
  name: string;
  /** What the engine says of it. Undefined if it could not be loaded in the end: what was learnt is in its files all the same. */
  adapter: LoadedAdapter | undefined;
  /** Why it could not be loaded. */
  error: EngineError | undefined;
  /** The mean cross entropy of each step's examples before it, in nats. */
  losses: number[];
  /** The same of what was held out, before the first step and after each epoch. */
  heldOut: HeldOutLoss[];
  /**
   * Its files: `adapter_config.json` and `adapter_model.safetensors` as PEFT has them, or one GGUF file for llama.cpp. `engine.adapters.load` takes
   * both.
   *
   * @throws EngineError `unsupported_adapter` for `peft` if a matrix has no name in transformers.
   */
  files(format: 'peft' | 'gguf'): File[];
}

/** A training that can go on. */
export interface SavedCheckpoint {
  /** The name of its adapter. */
  name: string;
  /** Of its file. */
  bytes: number;
  /** When it was kept, in seconds since 1970. */
  created: number;
}
