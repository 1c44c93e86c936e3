// A host that outlives its GPU device and its worker: when one of them is lost, it loads the model into a new host and asks that one what is
// not answered yet. It knows nothing of what is asked.

import { onAbort, unlessAborted } from '../abort.js';
import { abortError, EngineError, errorData, toEngineError } from '../errors.js';
import type { TrainingPlan } from '../generated/training.js';
import type { ProcessorCall } from '../logits_processor.js';
import type {
  AdapterData,
  AttachedSession,
  EmbeddingsData,
  Generation,
  GenerationKind,
  LoadedHost,
  LoadServices,
  ReplayData,
  ScoreData,
  ScoreKind,
  TensorData,
  TrainedData,
  TrainingEventData,
} from '../protocol.js';
import { SCORED } from '../scores.js';
import type { HostSource } from '../source.js';
import { ENABLING, TRAINED } from '../train/host.js';
import type { EngineStats, KernelUse, LoadedAdapter, LoadProgress, ModelInfo, Smoothness, TokenizeOptions } from '../types.js';
import { Allowance } from './allowance.js';
import type { Hosts } from './hosts.js';
import { type AdapterLease, KnownAdapters, trainedAdapter } from './known_adapters.js';
import { LentTensors, tensorLost } from './lent_tensors.js';
import { exhausted, explained, failedAgain, isLoss, isPassing, noteLoss } from './losses.js';
import { type Asking, RecoveringGeneration } from './recovering_generation.js';
import type { LoadedModel, Recovery } from './recovery.js';
import { type Suspect, Suspects } from './suspects.js';

/** How long a browser is asked for an adapter in vain: it starts its GPU process again. */
const PAUSES_MS = [100, 200, 400, 800, 1600, 3200];

/** A host that is lost and still busy after this long is left as it is. */
const DISPOSE_TIMEOUT_MS = 2000;

export class RecoveringHost implements LoadedHost, Hosts {
  /** Resolves when it has given up. */
  readonly ended: Promise<EngineError>;
  gpuDevice?: () => GPUDevice;
  tensorBuffer?: (handle: number) => [buffer: GPUBuffer, offset: number];
  #recovery: Recovery;
  #allowance: Allowance;
  /** The host that answers; undefined while there is none. */
  #host: LoadedHost | undefined;
  #info: ModelInfo | undefined;
  /** The same, or the next one. Rejects when none will come. */
  #next!: Promise<LoadedHost>;
  #loading = new AbortController();
  /** Of the hosts that were lost by a trap. */
  #traps = new WeakMap<LoadedHost, EngineError>();
  /** Why hosts were lost. */
  #losses = new WeakMap<LoadedHost, EngineError>();
  /** Why there will be no host any more. */
  #gone: EngineError | undefined;
  #tellEnded!: (error: EngineError) => void;
  /** What is under way. */
  #suspects: Suspects;
  #training = 0;
  #recoveries = 0;
  #isProfiling = false;
  /** What was asked for after the load. */
  #smoothness: Smoothness | undefined;
  #adapters = new KnownAdapters();
  #tensors = new LentTensors();

  private constructor(recovery: Recovery) {
    this.#recovery = recovery;
    this.#allowance = new Allowance(recovery.most);
    this.#suspects = new Suspects(recovery.most);
    this.ended = new Promise((resolve) => (this.#tellEnded = resolve));
  }

  /** Loads the model; a loss meanwhile is recovered from too. */
  static async load(recovery: Recovery, signal: AbortSignal | undefined): Promise<LoadedModel> {
    const recovering = new RecoveringHost(recovery);
    const abort = () => recovering.#loading.abort(signal!.reason);
    if (signal?.aborted) abort();
    signal?.addEventListener('abort', abort, { once: true });
    try {
      return await recovering.#first();
    } finally {
      signal?.removeEventListener('abort', abort);
    }
  }

  async #first(): Promise<LoadedModel> {
    try {
      const loaded = await this.#recovery.load(undefined, this.#loading.signal);
      this.#adopt(loaded);
      return { host: this, info: loaded.info };
    } catch (thrown) {
      const error = toEngineError(thrown);
      if (!isLoss(error) || this.#loading.signal.aborted) throw explained(error);
      const begin = performance.now();
      const { info } = await this.#loadAgain(this.#lost(error));
      this.#recovered(begin);
      return { host: this, info };
    }
  }

  async generate(
    kind: GenerationKind,
    request: object,
    processor: ProcessorCall | undefined,
    replay?: ReplayData,
    signal?: AbortSignal,
  ): Promise<Generation> {
    // What is asked later changes nothing of it.
    let lease: AdapterLease | undefined = this.#host && this.#adapters.lease(request);
    const asking: Asking = {
      supply: (host) => (lease ??= this.#adapters.lease(request)).supply(host),
      start: (host, known) => host.generate(kind, lease!.of(request, host), processor, known),
    };
    const generation = new RecoveringGeneration(this, asking, request, replay, () => {
      this.#suspects.delete(generation);
      lease?.end();
    });
    this.#suspects.add(generation);
    await generation.begin(signal);
    return generation;
  }

  tokenize(text: string, options: TokenizeOptions): Promise<Uint32Array> {
    return this.#run((host) => host.tokenize(text, options));
  }

  detokenize(ids: Uint32Array): Promise<string> {
    return this.#run((host) => host.detokenize(ids));
  }

  embed(request: object, signal?: AbortSignal): Promise<EmbeddingsData> {
    return this.#run((host) => host.embed(request, signal), signal, 'the embedding');
  }

  score<Kind extends ScoreKind>(kind: Kind, request: object, signal?: AbortSignal): Promise<ScoreData[Kind]> {
    return this.#run((host) => host.score(kind, request, signal), signal, SCORED[kind]);
  }

  saveSession(conversation: object, attachment: object | undefined, signal?: AbortSignal): Promise<Blob> {
    return this.#run((host) => host.saveSession(conversation, attachment, signal), signal, 'saving the session');
  }

  restoreSession(session: Blob, signal?: AbortSignal): Promise<AttachedSession> {
    return this.#run((host) => host.restoreSession(session, signal), signal, 'restoring the session');
  }

  forward(ids: Uint32Array, layers: Uint32Array): Promise<TensorData[]> {
    return this.#run(async (host) => (await host.forward(ids, layers)).map((tensor) => this.#tensors.add(host, tensor)));
  }

  embedTensor(request: object): Promise<TensorData> {
    return this.#run(async (host) => this.#tensors.add(host, await host.embedTensor(request)));
  }

  /** Never on another host, where the tensor is not. */
  async readback(own: number): Promise<Float32Array> {
    const { host, handle } = this.#tensor(own);
    try {
      return await host.readback(handle);
    } catch (thrown) {
      if (!this.isLost(host, thrown)) throw thrown;
      throw tensorLost();
    }
  }

  async disposeTensor(own: number): Promise<void> {
    const tensor = this.#tensors.remove(own);
    // With its GPU a tensor is gone.
    if (tensor !== undefined && tensor.host === this.#host) await tensor.host.disposeTensor(tensor.handle).catch(() => {});
  }

  sync(): Promise<void> {
    return this.#run((host) => host.sync());
  }

  async stats(): Promise<EngineStats> {
    return { ...(await this.#run((host) => host.stats())), recoveries: this.#recoveries };
  }

  async resetStats(): Promise<void> {
    await this.#run((host) => host.resetStats());
    this.#recoveries = 0;
  }

  async setSmoothness(smoothness: Smoothness): Promise<void> {
    await this.#run((host) => host.setSmoothness(smoothness));
    this.#smoothness = smoothness;
  }

  async setProfiling(on: boolean): Promise<void> {
    await this.#run((host) => host.setProfiling(on));
    this.#isProfiling = on;
  }

  kernelTimes(): Promise<KernelUse[]> {
    return this.#run((host) => host.kernelTimes());
  }

  async loadAdapter(source: HostSource, data: AdapterData, services: LoadServices, signal?: AbortSignal): Promise<LoadedAdapter> {
    const work = async (host: LoadedHost) => {
      const adapter = await this.#adapters.inTurn(host, signal, () => host.loadAdapter(source, data, services, signal));
      // The next host does not have it.
      if (host !== this.#host) throw new EngineError('device_lost', 'the engine was lost while it loaded an adapter');
      return adapter;
    };
    const adapter = await this.#run(work, signal, 'loading the adapter');
    this.#adapters.add(adapter, source, data, services);
    return adapter;
  }

  async setAdapterScale(name: string, scale: number): Promise<void> {
    let undo = () => {};
    const work = (host: LoadedHost) => {
      undo = this.#adapters.setScale(name, scale);
      return host.setAdapterScale(name, scale);
    };
    await this.#run(work).catch((thrown: unknown) => {
      undo();
      throw thrown;
    });
  }

  async unloadAdapter(name: string): Promise<void> {
    let ended: ((isUnloaded: boolean) => void) | undefined;
    const work = (host: LoadedHost) => {
      ended ??= this.#adapters.unload(name);
      return host.unloadAdapter(name);
    };
    await this.#run(work).then(
      () => ended?.(true),
      (thrown: unknown) => {
        ended?.(false);
        throw thrown;
      },
    );
  }

  async adapters(): Promise<LoadedAdapter[]> {
    return this.#adapters.told(await this.#run((host) => host.adapters()));
  }

  get canTrain(): boolean {
    return this.#recovery.canTrain;
  }

  async enableTraining(onProgress: (progress: LoadProgress) => void, signal?: AbortSignal): Promise<void> {
    const load = await this.#recovery.withTraining(onProgress, signal);
    await this.#replace({ ...this.#recovery, load, canTrain: true }, signal, ENABLING);
  }

  planLora(training: object): Promise<TrainingPlan> {
    return this.#run((host) => host.planLora(training));
  }

  /** Never begun again on another host: what was learnt is lost, but for a checkpoint. */
  async trainLora(
    training: object,
    checkpoint: Blob | undefined,
    onEvent: (event: TrainingEventData) => void,
    signal?: AbortSignal,
  ): Promise<TrainedData> {
    const host = await this.current(signal, 'the training');
    this.#training += 1;
    let trained: TrainedData;
    try {
      trained = await host.trainLora(training, checkpoint, onEvent, signal);
    } catch (thrown) {
      if (this.#gone !== undefined) throw this.#gone;
      if (!this.isLost(host, thrown)) throw thrown;
      throw this.#traps.get(host) ?? this.#losses.get(host) ?? thrown;
    } finally {
      this.#training -= 1;
    }
    // What was learnt is there, also if the host was lost while it loaded it.
    const wasLost = !('name' in trained.adapter) && (host !== this.#host || this.isLost(host, trained.adapter));
    if (this.#gone !== undefined || (!('name' in trained.adapter) && !wasLost)) return trained;
    const { name = TRAINED } = training as { name?: string };
    const adapter = trainedAdapter('name' in trained.adapter ? trained.adapter : { name, scale: 1 }, trained.gguf);
    if (host === this.#host && !wasLost) {
      this.#adapters.addOwn(adapter);
      return trained;
    }
    const { source, data, services } = adapter;
    // The next host does not have it yet.
    return { ...trained, adapter: await this.loadAdapter(source, data, services).catch((thrown) => errorData(toEngineError(thrown))) };
  }

  async dispose(): Promise<void> {
    const host = this.#host;
    this.#end(new EngineError('disposed', 'the engine was disposed of: load the model again with Engine.load()'));
    await host?.dispose();
    // A load that was under way frees what it had.
    await this.#next.catch(() => {});
  }

  async current(signal: AbortSignal | undefined, what: string): Promise<LoadedHost> {
    if (this.#gone !== undefined) throw this.#gone;
    if (this.#host !== undefined) return this.#host;
    return unlessAborted(this.#next, signal, what);
  }

  isLost(host: LoadedHost, thrown: unknown): boolean {
    if (this.#gone !== undefined) return false;
    if (host !== this.#host) return true;
    const error = toEngineError(thrown);
    if (isLoss(error)) this.#lose(host, error);
    return isLoss(error);
  }

  trapOf(host: LoadedHost): EngineError | undefined {
    return this.#traps.get(host);
  }

  blameOf(suspect: Suspect, host: LoadedHost): EngineError | undefined {
    return this.#suspects.blameOf(suspect, host);
  }

  get loaded(): ModelInfo | undefined {
    return this.#info;
  }

  get gone(): EngineError | undefined {
    return this.#gone;
  }

  /** Asks a host, and the next one if that one is lost meanwhile, but not by a trap, and not if they are lost with this again and again. */
  async #run<T>(work: (host: LoadedHost) => Promise<T>, signal?: AbortSignal, what = 'the request'): Promise<T> {
    let asked: LoadedHost | undefined;
    let losses = 0;
    const call: Suspect = { lostWith: (host) => (host === asked ? ++losses : 0) };
    this.#suspects.add(call);
    try {
      for (;;) {
        // At once if there is one, so that what is asked in one breath happens in that order.
        const host = this.#host ?? (await this.current(signal, what));
        if (signal?.aborted) throw abortError(signal, what);
        asked = host;
        try {
          return await work(host);
        } catch (thrown) {
          if (this.#gone !== undefined) throw this.#gone;
          const isLost = this.isLost(host, thrown);
          const trap = this.#traps.get(host);
          const blame = this.blameOf(call, host);
          if (!isLost || trap !== undefined || blame !== undefined) throw this.#gone ?? trap ?? blame ?? thrown;
        }
      }
    } finally {
      this.#suspects.delete(call);
    }
  }

  #adopt({ host, info }: LoadedModel): void {
    this.#host = host;
    this.#info = info;
    this.#next = Promise.resolve(host);
    if (host.gpuDevice !== undefined) this.gpuDevice = () => this.#there().gpuDevice!();
    if (host.tensorBuffer !== undefined) {
      this.tensorBuffer = (own) => {
        const { host, handle } = this.#tensor(own);
        return host.tensorBuffer!(handle);
      };
    }
    void host.ended?.then((error) => this.#lose(host, error));
  }

  #there(): LoadedHost {
    if (this.#host === undefined)
      throw this.#gone ?? new EngineError('device_lost', 'the GPU device was lost, and the model is being loaded again');
    return this.#host;
  }

  #lose(host: LoadedHost, error: EngineError): void {
    if (host !== this.#host || this.#gone !== undefined) return;
    this.#host = undefined;
    if (isLoss(error)) this.#losses.set(host, error);
    else this.#traps.set(host, error);
    this.#suspects.lost(host, error);
    const begin = performance.now();
    const lost = this.#lost(error);
    this.#next = (async () => {
      await freed(host);
      const { host: next } = await this.#loadAgain(lost);
      this.#recovered(begin);
      return next;
    })();
    // Nobody may ask any more.
    this.#next.catch(() => {});
  }

  /**
   * Loads the model otherwise from now on: into another host, which takes this one's place as after a loss. Rejects if that fails or the signal is
   * aborted, and then the model is loaded as it was.
   */
  async #replace(recovery: Recovery, signal: AbortSignal | undefined, what: string): Promise<void> {
    let host = await this.current(signal, what);
    while (host !== this.#host) host = await this.current(signal, what);
    if (signal?.aborted) throw abortError(signal, what);
    const ending = new AbortController();
    const release = onAbort([signal, this.#loading.signal], () => ending.abort());
    this.#host = undefined;
    let failed: EngineError | undefined;
    this.#next = (async () => {
      await freed(host);
      try {
        const loaded = await this.#take(await recovery.load(undefined, ending.signal));
        this.#recovery = recovery;
        return loaded.host;
      } catch (thrown) {
        if (this.#gone !== undefined) throw this.#gone;
        failed = toEngineError(thrown);
        return (await this.#loadBack(failed)).host;
      } finally {
        release();
      }
    })();
    // Nobody may ask any more.
    this.#next.catch(() => {});
    await unlessAborted(this.#next, signal, what);
    if (failed !== undefined) throw failed;
  }

  /** Loads the model as it was, after another load failed. */
  async #loadBack(failed: EngineError): Promise<LoadedModel> {
    if (isLoss(failed)) noteLoss(failed, 'gpu');
    try {
      return await this.#take(await this.#recovery.load(failed, this.#loading.signal));
    } catch (thrown) {
      if (this.#gone !== undefined) throw this.#gone;
      const error = toEngineError(thrown);
      if (isLoss(error) || isPassing(error)) return this.#loadAgain(this.#lost(error));
      const given = new EngineError('device_lost', 'the GPU device was given up for what trains');
      throw this.#end(failedAgain(given, explained(error)));
    }
  }

  #lost(error: EngineError): EngineError {
    // Where nothing was loaded yet it was the GPU, if a device was lost.
    noteLoss(error, this.#info?.device === 'cpu' ? 'cpu' : 'gpu');
    this.#recovery.onEvent({ type: 'lost', code: error.code, message: error.message, requests: this.#requests });
    return error;
  }

  #recovered(begin: number): void {
    this.#recovery.onEvent({ type: 'recovered', ms: performance.now() - begin, requests: this.#requests });
  }

  get #requests(): number {
    return this.#suspects.size + this.#training;
  }

  /** Loads the model into a new host and lets that one answer. Ends everything if that can't be. */
  async #loadAgain(lost: EngineError): Promise<LoadedModel> {
    for (let error = lost, asked = 0, attempt: number | undefined; ; ) {
      if (!isPassing(error)) attempt = this.#allowance.take();
      if (attempt === undefined) throw this.#end(exhausted(error, this.#allowance.most));
      if (!isPassing(error)) this.#recovery.onEvent({ type: 'recovering', attempt, most: this.#allowance.most });
      try {
        const loaded = await this.#take(await this.#recovery.load(error, this.#loading.signal));
        this.#recoveries += 1;
        return loaded;
      } catch (thrown) {
        if (this.#gone !== undefined) throw this.#gone;
        error = toEngineError(thrown);
        const { signal } = this.#loading;
        if (signal.aborted) throw this.#end(error);
        const ms = PAUSES_MS[asked];
        if (isPassing(error) && ms !== undefined) {
          asked += 1;
          await unlessAborted(pause(ms), signal, 'loading the model').catch((thrown: unknown) => {
            throw this.#end(toEngineError(thrown));
          });
        } else if (isLoss(error)) {
          this.#lost(error);
        } else {
          throw this.#end(failedAgain(lost, explained(error)));
        }
      }
    }
  }

  /** Lets a host answer in place of the last one, with its adapters. Frees it if that can't be. */
  async #take(loaded: LoadedModel): Promise<LoadedModel> {
    const { host, info } = loaded;
    try {
      if (this.#gone !== undefined) throw this.#gone;
      // Before anybody asks it.
      await this.#adapters.loadInto(host, this.#loading.signal);
      if (this.#gone !== undefined) throw this.#gone;
    } catch (thrown) {
      await host.dispose().catch(() => {});
      throw thrown;
    }
    this.#adopt(loaded);
    this.#recovery.onLoadedAgain(info);
    if (this.#smoothness !== undefined) await host.setSmoothness(this.#smoothness).catch(() => {});
    if (this.#isProfiling) await host.setProfiling(true).catch(() => {});
    return loaded;
  }

  #end(error: EngineError): EngineError {
    if (this.#gone === undefined) {
      this.#gone = error;
      this.#host = undefined;
      this.#loading.abort(error);
      this.#tellEnded(error);
    }
    return this.#gone;
  }

  #tensor(own: number): { host: LoadedHost; handle: number } {
    if (this.#gone !== undefined) throw this.#gone;
    return this.#tensors.find(own, this.#host);
  }
}

/** Frees what is left of a host, such as a page's GPU buffers. */
async function freed(host: LoadedHost): Promise<void> {
  await Promise.race([host.dispose().catch(() => {}), pause(DISPOSE_TIMEOUT_MS)]);
}

const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));
