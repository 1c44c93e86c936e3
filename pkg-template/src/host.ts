// Runs one model on the wasm of this thread, whichever thread that is: the worker's or the page's. It knows nothing of
// messages, queues or OpenAI's shapes.

import { disposed, EngineGeneration } from './engine_generation.js';
import { abortError, deviceLost, EngineError, type ErrorCode, toEngineError } from './errors.js';
import { onAbort, unlessAborted } from './abort.js';
import type { RetryPolicy } from './files/attempts.js';
import type { Arrived } from './files/events.js';
import type { FilesData } from './files/options.js';
import type { LoadedAdapter, Progress } from './generated/loading.js';
import { ProgressMeter } from './files/progress.js';
import type { RemoteFiles } from './files/remote_files.js';
import { retryPolicy, startFiles } from './files/start_files.js';
import type { ProcessorCall } from './logits_processor.js';
import type {
  AdapterData,
  AttachedSession,
  EmbeddingsData,
  Generation,
  GenerationKind,
  Host,
  HostLoadOptions,
  LoadServices,
  ReplayData,
  ScoreData,
  ScoreKind,
  TensorData,
  TrainedData,
  TrainingEventData,
} from './protocol.js';
import { grammarLoader } from './grammar.js';
import { watchVisibility } from './page_visibility.js';
import type { HostSource } from './source.js';
import type { TrainingPlan } from './generated/training.js';
import { withinTime } from './time_limit.js';
import { planOf, trainedBy, trainedData } from './train/host.js';
import type { EngineStats, Inspection, KernelUse, ModelInfo, Smoothness, TokenizeOptions } from './types.js';
import { bytesOfTeam, type StartedTeam, startTeam } from './team/cpu_team.js';
import { keepTunings, keptTunings } from './tunings.js';
import { loadWasm, type Wasm, type WasmEngine, type WasmLoadOptions, type WasmTensor } from './wasm.js';
import type { EngineWasm } from './wasm_source.js';

/** What a device that is going away may cause before anybody hears that it is lost. */
const SYMPTOMS: readonly ErrorCode[] = ['internal', 'gpu_validation', 'shader_compilation', 'out_of_memory', 'numerical_error'];
/** How long browsers take to say so. */
const LOSS_MS = 100;

/** The wasm for this call, which need not be the only one that waits for it. */
function wasmUnlessAborted(source: EngineWasm | undefined, policy: RetryPolicy, signal: AbortSignal | undefined): Promise<Wasm> {
  return unlessAborted(loadWasm(source, policy), signal, 'loading the WebAssembly module');
}

export class EngineHost implements Host {
  /** Resolves when the GPU device is lost or the wasm has trapped. */
  readonly ended: Promise<EngineError>;
  #tellEnded!: (error: EngineError) => void;
  #forgetTraps: (() => void) | undefined;
  #wasm: Wasm | undefined;
  /** The same from the beginning of a load on. */
  #loading: Wasm | undefined;
  #isPageHidden = false;
  #unwatch = () => {};
  /** Why the threads of the CPU are gone, if they are. */
  #lost: EngineError | undefined;
  /** The threads of the CPU, from the beginning of a load on. */
  #starting: Promise<StartedTeam> = Promise.resolve({});
  #stopHelpers = () => {};
  #engine: WasmEngine | undefined;
  #device: GPUDevice | undefined;
  #generations = new Set<EngineGeneration>();
  /** What saves or restores a session, or loads an adapter. */
  #sessions = new Set<{ stop(): void; ended: Promise<unknown> }>();
  #adapterLoads = new Set<AbortController>();
  #tensors = new Map<number, WasmTensor>();
  #nextHandle = 1;

  constructor() {
    this.ended = new Promise((resolve) => (this.#tellEnded = resolve));
  }

  async load(
    source: HostSource,
    { wasm: wasmSource, grammarWasm, files: filesData, ...options }: HostLoadOptions,
    services: LoadServices,
    signal: AbortSignal | undefined,
  ): Promise<ModelInfo> {
    const policy = retryPolicy(filesData, services);
    if (options.device === 'cpu') {
      this.#starting = startTeam(options.threads, wasmSource?.from, services, policy);
      this.#stopHelpers = () => services.stopHelpers();
    }
    const needed = Promise.all([
      loadWasm(wasmSource, policy),
      this.#starting,
      options.autotune === 'off' ? undefined : keptTunings(signal),
    ]);
    // Threads that do not start are waited for as well.
    const [wasm, { team, warning }, tunings] = await unlessAborted(needed, signal, 'loading the model');
    this.#loading = wasm;
    team?.onBroken((message) => {
      this.#lost = new EngineError('device_lost', `the threads of the CPU are lost: ${message}`);
      this.#tellEnded(this.#lost);
    });
    if (this.#isPageHidden) wasm.call(() => wasm.setPageHidden(true));
    if (services.isOfOnePage) this.#unwatch = watchVisibility((isHidden) => this.setPageHidden(isHidden));
    const meter = new ProgressMeter();
    const engine = await this.#withFiles(wasm, filesData, true, services, meter, signal, async (files) => {
      const wasmOptions: WasmLoadOptions = { ...options, files, grammars: grammarLoader(grammarWasm, policy) };
      wasmOptions.onMemoryPressure = (event) => services.onMemoryPressure(event);
      if (tunings !== undefined) wasmOptions.tunings = tunings;
      if (team !== undefined) wasmOptions.team = team;
      if (signal !== undefined) wasmOptions.signal = signal;
      let ready: Progress | undefined;
      const engine = await this.#ask(wasm, () =>
        wasm.WasmEngine.load(source, wasmOptions, (progress) => {
          // It is ready when its files are what they should be.
          if (progress.phase === 'ready') ready = progress;
          else services.onProgress(meter.progress(progress.phase, progress.loaded, progress.total));
        }),
      );
      try {
        await files.finish();
        if (signal?.aborted) throw abortError(signal, 'loading the model');
      } catch (thrown) {
        await wasm.guard(() => engine.dispose());
        throw thrown;
      }
      if (ready !== undefined) services.onProgress(meter.progress('ready', ready.loaded, ready.total));
      return engine;
    });
    const found = await wasm.guard(() => engine.tunings());
    if (found !== undefined) await keepTunings(found, signal);
    this.#wasm = wasm;
    this.#engine = engine;
    this.#forgetTraps = wasm.onTrap((error) => this.#tellEnded(error));
    const info = await wasm.guard(() => engine.info());
    if (warning !== undefined) info.warnings.push(warning);
    if (info.device === 'gpu') {
      this.#device = wasm.call(() => engine.gpuDevice());
      void this.#device.lost.then((lost) => {
        // Whoever disposes of the engine has its device destroyed.
        if (this.#engine === engine) this.#tellEnded(deviceLost(lost));
      });
    }
    return info;
  }

  async inspect(
    source: HostSource,
    { wasm: wasmSource, files: filesData, ...options }: HostLoadOptions,
    services: LoadServices,
    signal: AbortSignal | undefined,
  ): Promise<Inspection> {
    const wasm = await wasmUnlessAborted(wasmSource, retryPolicy(filesData, services), signal);
    const bytes = options.device === 'cpu' ? bytesOfTeam(options.threads) : undefined;
    // As much of a team as decides what fits.
    const team = bytes === undefined ? {} : { team: { mostBytes: () => bytes } };
    return this.#withFiles(wasm, filesData, false, services, new ProgressMeter(), signal, (files) =>
      wasm.guard(() => wasm.inspectModel(source, { ...options, ...team, files, ...(signal === undefined ? {} : { signal }) })),
    );
  }

  async download(
    source: HostSource,
    { wasm: wasmSource, files: filesData }: HostLoadOptions,
    services: LoadServices,
    signal: AbortSignal | undefined,
  ): Promise<number> {
    const wasm = await wasmUnlessAborted(wasmSource, retryPolicy(filesData, services), signal);
    const meter = new ProgressMeter();
    let total = 0;
    let loaded = 0;
    const report = () => services.onProgress(meter.progress('download', total === 0 ? loaded : Math.min(loaded, total), total));
    const counting: LoadServices & { onBytes(arrived: Arrived): void } = {
      ...services,
      onBytes: ({ bytes }) => {
        loaded += bytes;
        report();
      },
    };
    return this.#withFiles(wasm, filesData, true, counting, meter, signal, async (files) => {
      total = await wasm.guard(() => wasm.openModel(source, { files, ...(signal === undefined ? {} : { signal }) }));
      report();
      await files.finish();
      return total;
    });
  }

  /** Opens the files of servers for as long as `work` takes. */
  async #withFiles<T>(
    wasm: Wasm,
    data: FilesData,
    isWhole: boolean,
    services: LoadServices & { onBytes?(arrived: Arrived): void },
    meter: ProgressMeter,
    signal: AbortSignal | undefined,
    work: (files: RemoteFiles) => Promise<T>,
  ): Promise<T> {
    const files = await startFiles(
      data,
      isWhole,
      {
        onEvent: (event) => services.onEvent(event),
        onBytes: (arrived) => {
          meter.arrived(arrived);
          services.onBytes?.(arrived);
        },
        onWait: (loaded, total) => services.onProgress(meter.progress('download', loaded, total)),
        store: services.store,
        startDigester: (of) => services.startDigester(of),
        makeHasher: async () => new wasm.WasmSha256(),
      },
      signal,
    );
    try {
      return await work(files);
    } finally {
      files.close();
    }
  }

  async generate(kind: GenerationKind, request: object, processor: ProcessorCall | undefined, replay?: ReplayData): Promise<Generation> {
    const { wasm, engine } = this.#loaded();
    let stop!: () => void;
    const stopped = new Promise<null>((resolve) => (stop = () => resolve(null)));
    // A processor that never comes back must not keep the generation from ending.
    const call = processor && ((...args: Parameters<ProcessorCall>) => Promise.race([processor(...args), stopped]));
    const generation = await this.#ask(wasm, () =>
      kind === 'chat' ? engine.chat(request, call, replay) : engine.complete(request, call, replay),
    );
    if (this.#engine !== engine) throw disposed();
    const running = new EngineGeneration(wasm, generation, (work) => this.#ask(wasm, work), stop);
    this.#generations.add(running);
    void running.released.then(() => this.#generations.delete(running));
    return running;
  }

  async tokenize(text: string, options: TokenizeOptions): Promise<Uint32Array> {
    const { wasm, engine } = this.#loaded();
    return this.#ask(wasm, () => engine.tokenize(text, options));
  }

  async detokenize(ids: Uint32Array): Promise<string> {
    const { wasm, engine } = this.#loaded();
    return this.#ask(wasm, () => engine.detokenize(ids));
  }

  async embed(request: object, signal?: AbortSignal): Promise<EmbeddingsData> {
    return this.#stoppable(signal, (engine, stopped) => engine.embed(request, stopped));
  }

  async score<Kind extends ScoreKind>(kind: Kind, request: object, signal?: AbortSignal): Promise<ScoreData[Kind]> {
    return this.#stoppable(signal, (engine, stopped) => engine.score(kind, request, stopped));
  }

  async saveSession(conversation: object, attachment: object | undefined, signal?: AbortSignal): Promise<Blob> {
    // The browser holds what is in Blobs, in files if need be.
    const pieces: Blob[] = [];
    await this.#stoppable(signal, (engine, stopped) =>
      engine.saveSession(conversation, attachment, (bytes) => void pieces.push(new Blob([bytes])), stopped),
    );
    const session = new Blob(pieces, { type: 'application/octet-stream' });
    try {
      // Browsers copy the bytes of a Blob later. When the last byte can be read all of it is there, and stays if this tab goes.
      await session.slice(-1).arrayBuffer();
    } catch (thrown) {
      throw new EngineError('out_of_memory', `the browser has no room for a session of ${session.size} bytes: ${String(thrown)}`, {
        cause: thrown,
      });
    }
    return session;
  }

  async restoreSession(session: Blob, signal?: AbortSignal): Promise<AttachedSession> {
    return this.#stoppable(signal, (engine, stopped) => engine.restoreSession(session, stopped));
  }

  /** Lets the engine work until that is done, the signal is aborted or the engine is disposed of. */
  async #stoppable<T>(
    signal: AbortSignal | undefined,
    work: (engine: WasmEngine, stopped: Promise<void>, wasm: Wasm) => Promise<T>,
  ): Promise<T> {
    const { wasm, engine } = this.#loaded();
    let stop!: () => void;
    const stopped = new Promise<void>((resolve) => (stop = resolve));
    if (signal?.aborted) stop();
    signal?.addEventListener('abort', stop, { once: true });
    const working = this.#ask(wasm, () => work(engine, stopped, wasm));
    const session = { stop, ended: working.catch(() => {}) };
    this.#sessions.add(session);
    await session.ended;
    this.#sessions.delete(session);
    signal?.removeEventListener('abort', stop);
    // Whoever listens to it in the wasm is let go.
    stop();
    if (this.#engine !== engine) throw disposed();
    return working;
  }

  async forward(ids: Uint32Array, layers: Uint32Array): Promise<TensorData[]> {
    return this.#kept((engine) => engine.forward(ids, layers));
  }

  async embedTensor(request: object): Promise<TensorData> {
    const [tensor] = await this.#kept(async (engine) => [await engine.embedTensor(request)]);
    return tensor!;
  }

  gpuDevice(): GPUDevice {
    const { wasm, engine } = this.#loaded();
    return wasm.call(() => engine.gpuDevice());
  }

  tensorBuffer(handle: number): [buffer: GPUBuffer, offset: number] {
    const { wasm } = this.#loaded();
    const tensor = this.#tensor(handle);
    return wasm.call(() => tensor.buffer());
  }

  /** Keeps the tensors that `make` gives, by their handles. */
  async #kept(make: (engine: WasmEngine) => Promise<WasmTensor[]>): Promise<TensorData[]> {
    const { wasm, engine } = this.#loaded();
    const tensors = await this.#ask(wasm, () => make(engine));
    if (this.#engine !== engine) {
      await wasm.guard(() => {
        for (const tensor of tensors) {
          tensor.dispose();
          tensor.free();
        }
      });
      throw disposed();
    }
    return tensors.map((tensor) => {
      const handle = this.#nextHandle++;
      this.#tensors.set(handle, tensor);
      return { handle, shape: Array.from(tensor.shape), dtype: tensor.dtype };
    });
  }

  #tensor(handle: number): WasmTensor {
    const tensor = this.#tensors.get(handle);
    if (tensor === undefined) throw new EngineError('disposed', 'the tensor was disposed of: use it before dispose()');
    return tensor;
  }

  async readback(handle: number): Promise<Float32Array> {
    const { wasm } = this.#loaded();
    const tensor = this.#tensor(handle);
    return this.#ask(wasm, () => tensor.readback());
  }

  async disposeTensor(handle: number): Promise<void> {
    const tensor = this.#tensors.get(handle);
    this.#tensors.delete(handle);
    const wasm = this.#wasm;
    if (tensor === undefined || wasm === undefined || wasm.isBroken()) return;
    wasm.call(() => {
      tensor.dispose();
      tensor.free();
    });
  }

  async sync(): Promise<void> {
    const { wasm, engine } = this.#loaded();
    await this.#ask(wasm, () => engine.sync());
  }

  async stats(): Promise<EngineStats> {
    const { wasm, engine } = this.#loaded();
    const { team } = await this.#starting;
    const wasm_memory_bytes = wasm.memoryBytes() + (team?.memoryBytes() ?? 0);
    return { ...(await wasm.guard(() => engine.stats())), wasm_memory_bytes };
  }

  async resetStats(): Promise<void> {
    const { wasm, engine } = this.#loaded();
    await wasm.guard(() => engine.resetStats());
  }

  async setSmoothness(smoothness: Smoothness): Promise<void> {
    const { wasm, engine } = this.#loaded();
    await wasm.guard(() => engine.setSmoothness(smoothness));
  }

  /** Tells the wasm whether anybody sees the page; also one that is still on its way. */
  setPageHidden(isHidden: boolean): void {
    this.#isPageHidden = isHidden;
    if (this.#loading !== undefined && !this.#loading.isBroken()) this.#loading.call(() => this.#loading!.setPageHidden(isHidden));
  }

  async setProfiling(on: boolean): Promise<void> {
    const { wasm, engine } = this.#loaded();
    await wasm.guard(() => engine.setProfiling(on));
  }

  async kernelTimes(): Promise<KernelUse[]> {
    const { wasm, engine } = this.#loaded();
    return this.#ask(wasm, () => engine.kernelTimes());
  }

  async loadAdapter(
    source: HostSource,
    { files: filesData, ...options }: AdapterData,
    services: LoadServices,
    signal?: AbortSignal,
  ): Promise<LoadedAdapter> {
    const { wasm, engine } = this.#loaded();
    // Whoever disposes of the engine ends the downloads too.
    const stopping = new AbortController();
    const release = onAbort([signal], () => stopping.abort(signal?.reason));
    this.#adapterLoads.add(stopping);
    const meter = new ProgressMeter();
    const progress = (loaded: number, total: number) => services.onProgress(meter.progress('weights', loaded, total));
    try {
      return await this.#withFiles(wasm, filesData, true, services, meter, stopping.signal, async (files) => {
        const adapter = await this.#stoppable(stopping.signal, (engine, stopped) =>
          engine.loadAdapter(source, options, files, progress, stopped),
        );
        try {
          await files.finish();
          if (stopping.signal.aborted) throw abortError(stopping.signal, 'loading the adapter');
        } catch (thrown) {
          // It is no adapter of the engine's unless its files are what they should be.
          await this.unloadAdapter(adapter.name).catch(() => {});
          throw thrown;
        }
        return adapter;
      });
    } catch (thrown) {
      throw this.#engine === engine ? thrown : disposed();
    } finally {
      this.#adapterLoads.delete(stopping);
      release();
    }
  }

  async setAdapterScale(name: string, scale: number): Promise<void> {
    const { wasm, engine } = this.#loaded();
    await wasm.guard(() => engine.setAdapterScale(name, scale));
  }

  async unloadAdapter(name: string): Promise<void> {
    const { wasm, engine } = this.#loaded();
    await wasm.guard(() => engine.unloadAdapter(name));
  }

  async adapters(): Promise<LoadedAdapter[]> {
    const { wasm, engine } = this.#loaded();
    return wasm.guard(() => engine.adapters());
  }

  async planLora(training: object): Promise<TrainingPlan> {
    const { wasm, engine } = this.#loaded();
    return this.#ask(wasm, () => planOf(wasm, engine, training));
  }

  async trainLora(
    training: object,
    checkpoint: Blob | undefined,
    onEvent: (event: TrainingEventData) => void,
    signal?: AbortSignal,
  ): Promise<TrainedData> {
    return trainedData(
      await this.#stoppable(signal, (engine, stopped, wasm) => trainedBy(wasm, engine, training, checkpoint, onEvent, stopped)),
    );
  }

  async dispose(): Promise<void> {
    try {
      await this.#dispose();
    } finally {
      // Also of a load that was given up.
      const stop = this.#stopHelpers;
      void this.#starting.then(({ team }) => {
        team?.end();
        // One that hangs does not hear of the end.
        stop();
      });
      this.#starting = Promise.resolve({});
    }
  }

  async #dispose(): Promise<void> {
    const [wasm, engine] = [this.#wasm, this.#engine];
    const tensors = [...this.#tensors.values()];
    this.#unwatch();
    this.#engine = undefined;
    this.#tensors.clear();
    this.#forgetTraps?.();
    // A step that runs still uses the engine's buffers: it ends first, and its reader hears why.
    await Promise.all(Array.from(this.#generations, (generation) => generation.end(disposed())));
    for (const loading of this.#adapterLoads) loading.abort();
    for (const { stop } of this.#sessions) stop();
    await Promise.all(Array.from(this.#sessions, ({ ended }) => ended));
    if (engine === undefined || wasm === undefined) return;
    if (wasm.isBroken()) {
      // Nothing of it can be called any more; its buffers go with its device.
      this.#device?.destroy();
      return;
    }
    await wasm.guard(() => {
      for (const tensor of tensors) tensor.dispose();
      engine.dispose();
    });
  }

  /** Lets the wasm work. What fails since the device goes away says so, whatever it came to. */
  async #ask<T>(wasm: Wasm, work: () => T | Promise<T>): Promise<Awaited<T>> {
    try {
      return await wasm.guard(work);
    } catch (thrown) {
      const error = toEngineError(thrown);
      if (this.#lost !== undefined && !wasm.isBroken()) throw this.#lost;
      if (this.#device === undefined || wasm.isBroken() || !SYMPTOMS.includes(error.code)) throw error;
      const lost = await withinTime(this.#device.lost, LOSS_MS);
      throw lost === undefined ? error : deviceLost(lost);
    }
  }

  #loaded(): { wasm: Wasm; engine: WasmEngine } {
    if (this.#wasm === undefined || this.#engine === undefined) {
      throw disposed();
    }
    return { wasm: this.#wasm, engine: this.#engine };
  }
}
