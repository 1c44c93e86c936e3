// Runs one model on the wasm of this thread, whichever thread that is: the worker's or the page's. It knows nothing of
// messages, queues or OpenAI's shapes.

import { EngineError } from './errors.js';
import type { ProcessorCall } from './logits_processor.js';
import type { Chunk, EmbeddingsData, Generation, GenerationKind, Host, HostLoadOptions, TensorData } from './protocol.js';
import { grammarLoader } from './grammar.js';
import type { HostSource } from './source.js';
import type { EngineStats, Inspection, KernelUse, LoadProgress, ModelInfo, TokenizeOptions } from './types.js';
import { keepTunings, keptTunings } from './tunings.js';
import { loadWasm, type Wasm, type WasmEngine, type WasmGeneration, type WasmLoadOptions, type WasmTensor } from './wasm.js';

export class EngineHost implements Host {
  #wasm: Wasm | undefined;
  #engine: WasmEngine | undefined;
  #generations = new Set<EngineGeneration>();
  #tensors = new Map<number, WasmTensor>();
  #nextHandle = 1;

  async load(
    source: HostSource,
    { wasmUrl, grammarWasmUrl, ...options }: HostLoadOptions,
    onProgress: (progress: LoadProgress) => void,
    signal: AbortSignal | undefined,
  ): Promise<ModelInfo> {
    const [wasm, tunings] = await Promise.all([loadWasm(wasmUrl), options.autotune === 'off' ? undefined : keptTunings()]);
    const wasmOptions: WasmLoadOptions = { ...options, grammars: grammarLoader(grammarWasmUrl) };
    if (tunings !== undefined) wasmOptions.tunings = tunings;
    if (signal !== undefined) wasmOptions.signal = signal;
    const engine = await wasm.guard(() => wasm.WasmEngine.load(source, wasmOptions, onProgress));
    const found = await wasm.guard(() => engine.tunings());
    if (found !== undefined) await keepTunings(found);
    this.#wasm = wasm;
    this.#engine = engine;
    return wasm.guard(() => engine.info());
  }

  async inspect(source: HostSource, { wasmUrl, ...options }: HostLoadOptions, signal: AbortSignal | undefined): Promise<Inspection> {
    const wasm = await loadWasm(wasmUrl);
    return wasm.guard(() => wasm.inspectModel(source, signal === undefined ? options : { ...options, signal }));
  }

  async generate(kind: GenerationKind, request: object, processor: ProcessorCall | undefined): Promise<Generation> {
    const { wasm, engine } = this.#loaded();
    let stop!: () => void;
    const stopped = new Promise<null>((resolve) => (stop = () => resolve(null)));
    // A processor that never comes back must not keep the generation from ending.
    const call = processor && ((...args: Parameters<ProcessorCall>) => Promise.race([processor(...args), stopped]));
    const generation = await wasm.guard(() => (kind === 'chat' ? engine.chat(request, call) : engine.complete(request, call)));
    if (this.#engine !== engine) throw disposed();
    const running = new EngineGeneration(wasm, generation, stop);
    this.#generations.add(running);
    void running.released.then(() => this.#generations.delete(running));
    return running;
  }

  async tokenize(text: string, options: TokenizeOptions): Promise<Uint32Array> {
    const { wasm, engine } = this.#loaded();
    return wasm.guard(() => engine.tokenize(text, options));
  }

  async detokenize(ids: Uint32Array): Promise<string> {
    const { wasm, engine } = this.#loaded();
    return wasm.guard(() => engine.detokenize(ids));
  }

  async embed(request: object): Promise<EmbeddingsData> {
    const { wasm, engine } = this.#loaded();
    return wasm.guard(() => engine.embed(request));
  }

  async forward(ids: Uint32Array): Promise<TensorData> {
    const { wasm, engine } = this.#loaded();
    const tensor = await wasm.guard(() => engine.forward(ids));
    if (this.#engine !== engine) {
      tensor.dispose();
      tensor.free();
      throw disposed();
    }
    const handle = this.#nextHandle++;
    this.#tensors.set(handle, tensor);
    return { handle, shape: Array.from(tensor.shape), dtype: tensor.dtype };
  }

  async readback(handle: number): Promise<Float32Array> {
    const { wasm } = this.#loaded();
    const tensor = this.#tensors.get(handle);
    if (tensor === undefined) throw new EngineError('disposed', 'the tensor was disposed of: read it back before dispose()');
    return wasm.guard(() => tensor.readback());
  }

  async disposeTensor(handle: number): Promise<void> {
    const tensor = this.#tensors.get(handle);
    this.#tensors.delete(handle);
    if (tensor === undefined || this.#wasm?.isBroken()) return;
    tensor.dispose();
    tensor.free();
  }

  async sync(): Promise<void> {
    const { wasm, engine } = this.#loaded();
    await wasm.guard(() => engine.sync());
  }

  async stats(): Promise<EngineStats> {
    const { wasm, engine } = this.#loaded();
    return { ...(await wasm.guard(() => engine.stats())), wasm_memory_bytes: wasm.memoryBytes() };
  }

  async resetStats(): Promise<void> {
    const { wasm, engine } = this.#loaded();
    await wasm.guard(() => engine.resetStats());
  }

  async setProfiling(on: boolean): Promise<void> {
    const { wasm, engine } = this.#loaded();
    await wasm.guard(() => engine.setProfiling(on));
  }

  async kernelTimes(): Promise<KernelUse[]> {
    const { wasm, engine } = this.#loaded();
    return wasm.guard(() => engine.kernelTimes());
  }

  async dispose(): Promise<void> {
    const [wasm, engine] = [this.#wasm, this.#engine];
    const tensors = [...this.#tensors.values()];
    this.#engine = undefined;
    this.#tensors.clear();
    // A step that runs still uses the engine's buffers: it ends first, and its reader hears why.
    await Promise.all(Array.from(this.#generations, (generation) => generation.end(disposed())));
    if (engine === undefined || wasm === undefined || wasm.isBroken()) return;
    await wasm.guard(() => {
      for (const tensor of tensors) tensor.dispose();
      engine.dispose();
    });
  }

  #loaded(): { wasm: Wasm; engine: WasmEngine } {
    if (this.#wasm === undefined || this.#engine === undefined) {
      throw disposed();
    }
    return { wasm: this.#wasm, engine: this.#engine };
  }
}

function disposed(): EngineError {
  return new EngineError('disposed', 'the engine was disposed of: load the model again with Engine.load()');
}

/** A generation whose steps never overlap its end: the wasm object is borrowed while a step runs. */
class EngineGeneration implements Generation {
  readonly released: Promise<void>;
  #wasm: Wasm;
  #generation: WasmGeneration;
  #step: Promise<unknown> = Promise.resolve();
  #ended: EngineError | undefined;
  /** Gives up what the caller's functions were asked for. */
  #stop: () => void;
  #resolveReleased!: () => void;

  constructor(wasm: Wasm, generation: WasmGeneration, stop: () => void) {
    this.#wasm = wasm;
    this.#generation = generation;
    this.#stop = stop;
    this.released = new Promise((resolve) => (this.#resolveReleased = resolve));
  }

  async next(): Promise<Chunk | undefined> {
    if (this.#ended !== undefined) throw this.#ended;
    const step = this.#wasm.guard(() => this.#generation.next());
    this.#step = step.catch(() => {});
    const chunk = await step;
    if (this.#ended !== undefined) throw this.#ended;
    return chunk;
  }

  cancel(): void {
    if (this.#ended === undefined && !this.#wasm.isBroken()) this.#generation.cancel();
    this.#stop();
  }

  /** Ends it for its reader with this error; resolves when no step runs any more. */
  async end(error: EngineError): Promise<void> {
    this.cancel();
    this.#ended ??= error;
    await this.#step;
  }

  async release(): Promise<void> {
    await this.end(disposed());
    if (!this.#wasm.isBroken()) this.#generation.free();
    this.#resolveReleased();
  }
}
