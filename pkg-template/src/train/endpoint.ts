// The trainings of an engine: one at a time, beside its answers. It checks what is asked and keeps checkpoints; the engine trains.

import { unlessAborted } from '../abort.js';
import {
  abortSignal,
  anything,
  callable,
  type Check,
  type Checks,
  describe,
  finite,
  isArray,
  named,
  readOptions,
  text,
  truth,
  whole,
} from '../arguments.js';
import { abortError, EngineError, toEngineError } from '../errors.js';
import type { CheckpointOptions, LoraTraining, Schedule, TrainingPlan } from '../generated/training.js';
import type { NamedFiles } from '../files/named_files.js';
import { dataOf } from '../json.js';
import { reporter } from '../load_services.js';
import type { LoadedHost, TrainedData, TrainingEventData } from '../protocol.js';
import { withinTime } from '../time_limit.js';
import { CheckpointWriter, checkName, openCheckpoints, withName } from './files.js';
import { cannotTrain, ENABLING, TRAINED } from './host.js';
import type { EnableOptions, LoraOptions, SavedCheckpoint, TrainedAdapter, TrainingEvent } from './types.js';

/** Adapters that are trained here. */
export interface Training {
  /**
   * Loads the model again with what trains, for an engine that was loaded without `training: true`. The engine stays the same: it keeps its adapters,
   * answers under way go on where they stood, and requests wait meanwhile. Conversations are taken in anew when they go on; tensors of the engine are
   * lost. Resolves at once if it can train already.
   *
   * ```js
   * if (!engine.train.isEnabled) await engine.train.enable();
   * ```
   *
   * @throws EngineError `wasm_unavailable` if what trains does not load, before the engine has given up anything; `invalid_request` for `device: 'cpu'`
   *   and for engines that tabs share; `aborted` by the signal; and what `Engine.load` throws. The model is then loaded as it was, and requests go on; if that fails too,
   *   `device_lost`, and the engine is gone.
   */
  enable(options?: EnableOptions): Promise<void>;
  /** Whether it can train: it was loaded with `training: true`, or enabled since. */
  readonly isEnabled: boolean;
  /**
   * Trains an adapter (LoRA) on chats or texts and loads it, with the scale 1. The model's weights stay as they are, quantised or not. One training runs
   * at a time; answers go on meanwhile, in turn with its steps.
   *
   * ```js
   * const data = [{ messages: [{ role: 'user', content: 'wug?' }, { role: 'assistant', content: 'dax blick' }] }];
   * const trained = await engine.train.lora({ data, name: 'game', epochs: 20, onProgress: (event) => console.log(event) });
   * const [config, weights] = trained.files('peft');
   * ```
   *
   * @throws EngineError before anything is computed: `invalid_request` or `out_of_range` for data and settings that are wrong, for a second training,
   *   for one by whose name another tab keeps checkpoints, and for an engine that is not enabled; `context_length_exceeded` for an example that is too long; `unsupported_architecture` for a model
   *   that can't be trained; `out_of_memory` if the GPU has no room; `adapter_limits`; `checkpoint_mismatch` and `invalid_file` for a checkpoint;
   *   `cache_unavailable` if none can be kept. Later: `aborted` by the signal; `numerical_error` if the loss is no number any more;
   *   `out_of_memory`; `device_lost` and `worker_lost`, of which a training does not recover by itself; `disposed`.
   */
  lora(options: LoraOptions): Promise<TrainedAdapter>;
  /**
   * What a training would do: its steps, its tokens, the numbers that learn, and the memory on the GPU that it takes, about. Nothing is allocated. It
   * takes the options of `lora`.
   *
   * @throws EngineError as `lora` does for data and settings that are wrong.
   */
  plan(options: LoraOptions): Promise<TrainingPlan>;
  /** The trainings that can go on. */
  readonly checkpoints: Checkpoints;
}

/** The states of trainings that are kept by the names of their adapters: of trainings that were interrupted. */
export interface Checkpoints {
  /** Those kept last first. */
  list(): Promise<SavedCheckpoint[]>;
  /** Deletes what is kept by a name. Resolves to whether there was something. */
  delete(name: string): Promise<boolean>;
}

/** What an engine offers for its trainings. */
export interface TrainingEngine {
  host: LoadedHost;
  /** Throws when the engine was disposed of. */
  check(): void;
}

const TRAINING = 'the training';
/** How long the end of a training waits for its last checkpoint. */
const WRITE_MS = 10_000;

/** More kinds of matrices than any model has. */
const MOST_TARGETS = 1000;

const texts: Check = (value) =>
  isArray(value) && value.length <= MOST_TARGETS && Array.from(value).every((part) => typeof part === 'string')
    ? undefined
    : 'an array of texts';

const LORA: Checks<LoraOptions> = {
  data: anything,
  heldOut: anything,
  name: text,
  rank: whole(1),
  alpha: finite,
  targets: texts,
  epochs: whole(1),
  batchSize: whole(1),
  learningRate: finite,
  schedule: named<Schedule>({ constant: true, linear: true, cosine: true }),
  warmupSteps: whole(0),
  weightDecay: finite,
  maxGradNorm: finite,
  maxLength: whole(2),
  seed: whole(0),
  checkpoint: anything,
  onProgress: callable,
  signal: abortSignal,
  resume: truth,
};
const CHECKPOINT: Checks<CheckpointOptions> = { everySteps: whole(1) };
const ENABLE: Checks<EnableOptions> = { onProgress: callable, signal: abortSignal };

export function trainingOf({ host, check }: TrainingEngine): Training {
  let isTraining = false;
  /** What enables the engine, or has. */
  let enabling: Promise<unknown> = Promise.resolve();
  const ready = () => {
    check();
    if (host.canTrain === false) throw cannotTrain();
  };
  return {
    get isEnabled() {
      return host.canTrain === true;
    },

    async enable(given = {}) {
      check();
      const { onProgress, signal } = readOptions('the options of train.enable', given, ENABLE);
      if (signal?.aborted) throw abortError(signal, ENABLING);
      const before = enabling;
      const working = unlessAborted(before, signal, ENABLING).then(async () => {
        check();
        if (host.canTrain !== true) await host.enableTraining!(reporter(onProgress), signal);
      });
      enabling = Promise.allSettled([before, working]);
      await working;
    },

    async lora(given) {
      ready();
      const { training, onProgress, signal, resume } = optionsOf('train.lora', given);
      if (signal?.aborted) throw abortError(signal, TRAINING);
      if (isTraining)
        throw new EngineError('invalid_request', 'the engine trains already, one adapter at a time: wait for it, or abort it');
      isTraining = true;
      try {
        const work = (files?: NamedFiles) => trained(host, training, resume, files, reporter(onProgress), signal);
        const { name = TRAINED } = training;
        if (training.checkpoint === undefined && !resume) return await work();
        checkName(name);
        // Where nothing can be kept, nothing is computed.
        const files = await unlessAborted(openCheckpoints(), signal, TRAINING);
        return await withName(name, signal, TRAINING, () => work(files));
      } catch (thrown) {
        throw signal?.aborted ? abortError(signal, TRAINING) : toEngineError(thrown);
      } finally {
        isTraining = false;
      }
    },

    async plan(given) {
      ready();
      const { training, signal } = optionsOf('train.plan', given);
      return unlessAborted(host.planLora(training), signal, TRAINING);
    },

    checkpoints: {
      async list() {
        check();
        const kept = await (await openCheckpoints()).list();
        kept.sort((a, b) => b.file.lastModified - a.file.lastModified);
        return kept.map(({ name, file }): SavedCheckpoint => {
          return { name, bytes: file.size, created: Math.floor(file.lastModified / 1000) };
        });
      },

      async delete(name) {
        check();
        checkName(name);
        return (await openCheckpoints()).delete(name);
      },
    },
  };
}

interface Options {
  training: LoraTraining;
  onProgress: LoraOptions['onProgress'];
  signal: AbortSignal | undefined;
  resume: boolean;
}

/** The options, with a copy of those that are data. */
function optionsOf(name: string, given: unknown): Options {
  const { onProgress, signal, resume = false, checkpoint, ...data } = readOptions(`the options of ${name}`, given, LORA);
  if (data.data === undefined)
    throw new EngineError('invalid_request', `the options of ${name} have no data, wanted an array of texts or chats`);
  const training = dataOf(TRAINING, data) as LoraTraining;
  if (checkpoint !== undefined) {
    training.checkpoint = readOptions('the option checkpoint', checkpoint, CHECKPOINT);
    const { everySteps } = training.checkpoint;
    if (everySteps === undefined) {
      throw new EngineError('invalid_request', `the option checkpoint is ${describe(checkpoint)}, wanted {everySteps}`);
    }
  }
  return { training, onProgress, signal, resume };
}

async function trained(
  host: LoadedHost,
  training: LoraTraining,
  resume: boolean,
  files: NamedFiles | undefined,
  tell: (event: TrainingEvent) => void,
  signal: AbortSignal | undefined,
): Promise<TrainedAdapter> {
  const { name = TRAINED } = training;
  const writer = files && new CheckpointWriter(files, name, tell);
  const checkpoint = resume ? await files?.find(name) : undefined;
  const onEvent = (event: TrainingEventData) => {
    if (event.type === 'checkpoint') writer?.keep(event.step, new Blob([event.bytes]));
    else tell(event);
  };
  let data: TrainedData;
  try {
    data = await host.trainLora(training, checkpoint, onEvent, signal);
  } finally {
    // So that what was kept last is there when the caller hears of it. A disk that stands still must not hold the training.
    if (writer !== undefined)
      await withinTime(
        writer.ended().catch(() => {}),
        WRITE_MS,
      );
  }
  if (signal?.aborted) {
    // It was loaded by the time the host heard of the signal.
    if ('name' in data.adapter) await host.unloadAdapter(name);
    throw abortError(signal, TRAINING);
  }
  if (files !== undefined)
    await withinTime(
      files.delete(name).catch(() => {}),
      WRITE_MS,
    );
  return adapterOf(name, data);
}

function adapterOf(name: string, { adapter, losses, heldOut, gguf, peft }: TrainedData): TrainedAdapter {
  const isLoaded = 'name' in adapter;
  return {
    name,
    adapter: isLoaded ? adapter : undefined,
    error: isLoaded ? undefined : toEngineError(adapter),
    losses,
    heldOut,
    files(format) {
      switch (format) {
        case 'gguf':
          return [new File([gguf], `${name}.gguf`)];
        case 'peft':
          if (!Array.isArray(peft)) throw toEngineError(peft);
          return peft.map(({ name, data }) => new File([data], name));
        default:
          throw new EngineError('invalid_request', `the format of files is ${describe(format)}, wanted 'peft' or 'gguf'`);
      }
    },
  };
}
