// From the chunks of an answer to the events of the Responses API, and to the response as a whole, which is what the last event holds. It
// knows nothing of requests but what the response repeats of them.

import { EngineError } from '../errors.js';
import type { TimedChunk } from '../generation.js';
import { chatLogprobs, newId, type Shapes } from '../openai.js';
import type { FunctionCall, ItemStatus, ModelResponse, OutputTextLogprob, ResponseStreamEvent, ResponseUsage } from './types.js';

/** An event without its number. */
type Body = ResponseStreamEvent extends infer Event ? (Event extends unknown ? Omit<Event, 'sequence_number'> : never) : never;
type OutputItem = ModelResponse['output'][number];
type Call = Extract<OutputItem, FunctionCall>;

/** An item of the output that grows. */
type Open =
  | { kind: 'reasoning'; item: Extract<OutputItem, { type: 'reasoning' }>; at: number; text: string }
  | { kind: 'message'; item: Extract<OutputItem, { type: 'message' }>; at: number; text: string; logprobs: OutputTextLogprob[] }
  | { kind: 'call'; item: Call; at: number; number: number };

export interface EventOptions {
  /** Reasoning goes into `summary` in place of `content`. */
  summary: boolean;
  logprobs: boolean;
  /** Called with the response at its end, before anybody sees it, and with the ids of calls that turned out to be none. */
  onEnd(response: ModelResponse, malformed: ReadonlySet<string>): void;
}

export class ResponseEvents implements Shapes<ModelResponse, ResponseStreamEvent> {
  #response: ModelResponse;
  #options: EventOptions;
  #sequence = 0;
  #open: Open | undefined;
  /** The calls by their number in the answer. */
  #calls = new Map<number, Call>();
  #malformed = new Set<string>();
  /** Of tokens whose text has not come yet. */
  #logprobs: OutputTextLogprob[] = [];
  #ready: ResponseStreamEvent[] = [];

  /** `response` is what the stream begins with; it grows. */
  constructor(response: ModelResponse, options: EventOptions) {
    this.#response = response;
    this.#options = options;
  }

  opening(): ResponseStreamEvent[] {
    this.#emit({ type: 'response.created', response: this.#response });
    this.#emit({ type: 'response.in_progress', response: this.#response });
    return this.#taken();
  }

  part(chunk: TimedChunk): ResponseStreamEvent[] {
    const { reasoning = '' } = chunk;
    if (reasoning !== '') this.#think(reasoning);
    if (this.#options.logprobs) this.#logprobs.push(...messageLogprobs(chunk));
    const { malformed_tool_calls: malformed = [] } = chunk;
    if (malformed.length > 0) this.#response.malformed_tool_calls = [...(this.#response.malformed_tool_calls ?? []), ...malformed];
    // Before their text, which would end them as if they were whole.
    for (const { index } of malformed) this.#unmake(index);
    if (chunk.text !== '') this.#say(chunk.text);
    for (const { index, id, function: part } of chunk.tool_calls ?? []) this.#call(index, id, part.name, part.arguments);
    // Those that began in this chunk.
    for (const { index } of malformed) this.#unmake(index);
    if (chunk.stop_reason !== undefined) this.#response.stop_reason = chunk.stop_reason;
    if (chunk.finish_reason !== undefined) this.#end(chunk);
    return this.#taken();
  }

  whole(chunks: TimedChunk[]): ModelResponse {
    for (const chunk of chunks) this.part(chunk);
    if (this.#response.status === 'in_progress') {
      throw new EngineError('internal', 'the generation ended without a finish_reason: this is a fault of rillm');
    }
    return structuredClone(this.#response);
  }

  failed({ code, message }: EngineError): ResponseStreamEvent[] {
    if (this.#response.status !== 'in_progress') return [];
    this.#close('incomplete');
    this.#response.status = 'failed';
    this.#response.error = { code: 'server_error', message: `${code}: ${message}` };
    this.#options.onEnd(this.#response, this.#malformed);
    this.#emit({ type: 'response.failed', response: this.#response });
    return this.#taken();
  }

  #think(delta: string): void {
    if (this.#open?.kind !== 'reasoning') {
      this.#switch();
      this.#begin('reasoning', { type: 'reasoning', id: newId('rs_'), summary: [], status: 'in_progress' });
    }
    const open = this.#open as Extract<Open, { kind: 'reasoning' }>;
    const at = { item_id: open.item.id, output_index: open.at };
    if (open.text === '') {
      const part = { type: 'summary_text', text: '' } as const;
      if (this.#options.summary) this.#emit({ type: 'response.reasoning_summary_part.added', ...at, summary_index: 0, part });
      else this.#emit({ type: 'response.content_part.added', ...at, content_index: 0, part: { type: 'reasoning_text', text: '' } });
    }
    open.text += delta;
    if (this.#options.summary) this.#emit({ type: 'response.reasoning_summary_text.delta', ...at, summary_index: 0, delta });
    else this.#emit({ type: 'response.reasoning_text.delta', ...at, content_index: 0, delta });
  }

  #say(delta: string): void {
    if (this.#open?.kind !== 'message') {
      const before = this.#logprobs;
      this.#switch();
      // The first token of a text may have come before its text.
      this.#logprobs = before;
      this.#begin('message', { type: 'message', id: newId('msg_'), role: 'assistant', status: 'in_progress', content: [] });
      const part = this.#textPart('', []);
      this.#emit({
        type: 'response.content_part.added',
        item_id: this.#open!.item.id,
        output_index: this.#open!.at,
        content_index: 0,
        part,
      });
    }
    const open = this.#open as Extract<Open, { kind: 'message' }>;
    open.text += delta;
    this.#response.output_text += delta;
    const logprobs = this.#logprobs.splice(0);
    open.logprobs.push(...logprobs);
    const at = { item_id: open.item.id, output_index: open.at, content_index: 0 };
    this.#emit({ type: 'response.output_text.delta', ...at, delta, logprobs });
  }

  #call(number: number, call_id: string | undefined, name: string | undefined, delta: string): void {
    if (this.#open?.kind !== 'call' || this.#open.number !== number) {
      if (this.#calls.has(number)) {
        throw new EngineError('internal', `call ${number} went on after something else had begun: this is a fault of rillm`);
      }
      this.#switch();
      const item: Call = {
        type: 'function_call',
        id: newId('fc_'),
        call_id: call_id ?? newId('call_'),
        name: name ?? '',
        arguments: '',
        status: 'in_progress',
      };
      this.#calls.set(number, item);
      this.#begin('call', item, number);
    }
    const open = this.#open as Extract<Open, { kind: 'call' }>;
    if (delta === '') return;
    open.item.arguments += delta;
    this.#logprobs = [];
    this.#emit({ type: 'response.function_call_arguments.delta', item_id: open.item.id, output_index: open.at, delta });
  }

  /** A call that turned out to be none. Its text comes as text. */
  #unmake(number: number | undefined): void {
    const call = number === undefined ? undefined : this.#calls.get(number);
    if (call === undefined) return;
    this.#malformed.add(call.id);
    if (this.#open?.kind === 'call' && this.#open.number === number) this.#close('incomplete');
    call.status = 'incomplete';
  }

  #begin(kind: Open['kind'], item: OutputItem, number = 0): void {
    const at = this.#response.output.push(item) - 1;
    this.#open = { kind, item, at, text: '', logprobs: [], number } as unknown as Open;
    this.#emit({ type: 'response.output_item.added', output_index: at, item });
  }

  /** Ends what is open, because something else begins. Tokens since its last text were markers. */
  #switch(): void {
    this.#logprobs = [];
    this.#close('completed');
  }

  #close(status: ItemStatus): void {
    const open = this.#open;
    if (open === undefined) return;
    this.#open = undefined;
    open.item.status = status;
    const at = { item_id: open.item.id, output_index: open.at };
    switch (open.kind) {
      case 'reasoning': {
        const { item, text } = open;
        if (this.#options.summary) {
          const part = { type: 'summary_text', text } as const;
          item.summary = [part];
          this.#emit({ type: 'response.reasoning_summary_text.done', ...at, summary_index: 0, text });
          this.#emit({ type: 'response.reasoning_summary_part.done', ...at, summary_index: 0, part });
        } else {
          const part = { type: 'reasoning_text', text } as const;
          item.content = [part];
          this.#emit({ type: 'response.reasoning_text.done', ...at, content_index: 0, text });
          this.#emit({ type: 'response.content_part.done', ...at, content_index: 0, part });
        }
        break;
      }
      case 'message': {
        const { item, text, logprobs } = open;
        // Of tokens without text, such as the one that ended the answer.
        logprobs.push(...this.#logprobs.splice(0));
        const part = this.#textPart(text, logprobs);
        item.content = [part];
        this.#emit({ type: 'response.output_text.done', ...at, content_index: 0, text, logprobs });
        this.#emit({ type: 'response.content_part.done', ...at, content_index: 0, part });
        break;
      }
      case 'call': {
        const { name, arguments: text } = open.item;
        this.#emit({ type: 'response.function_call_arguments.done', ...at, name, arguments: text });
      }
    }
    this.#emit({ type: 'response.output_item.done', output_index: open.at, item: open.item });
  }

  #textPart(text: string, logprobs: OutputTextLogprob[]) {
    return { type: 'output_text' as const, text, annotations: [], ...(this.#options.logprobs ? { logprobs } : {}) };
  }

  #end({ finish_reason, usage, timings }: TimedChunk): void {
    const response = this.#response;
    const isWhole = finish_reason === 'stop' || finish_reason === 'tool_calls';
    // An answer without anything is an empty text.
    if (isWhole && response.output.length === 0) this.#say('');
    const call = this.#open?.kind === 'call' ? this.#open.item : undefined;
    this.#close(isWhole || (call !== undefined && isJson(call.arguments)) ? 'completed' : 'incomplete');
    response.status = isWhole ? 'completed' : finish_reason === 'length' ? 'incomplete' : 'cancelled';
    if (finish_reason === 'length') response.incomplete_details = { reason: 'max_output_tokens' };
    if (isWhole) response.completed_at = Math.floor(Date.now() / 1000);
    if (usage !== undefined) response.usage = responseUsage(usage);
    if (timings !== undefined) response.timings = timings;
    this.#options.onEnd(response, this.#malformed);
    this.#emit({ type: isWhole ? 'response.completed' : 'response.incomplete', response });
  }

  /** Events don't change any more when the response does. */
  #emit(body: Body): void {
    this.#ready.push({ ...structuredClone(body), sequence_number: this.#sequence++ } as ResponseStreamEvent);
  }

  #taken(): ResponseStreamEvent[] {
    return this.#ready.splice(0);
  }
}

/** Of a chunk, the tokens of a message. Where reasoning ends in it, those from which on the text can be read. */
function messageLogprobs({ text, reasoning = '', logprobs }: TimedChunk): OutputTextLogprob[] {
  const tokens = chatLogprobs(logprobs)?.content ?? [];
  if (reasoning === '') return tokens;
  if (text === '') return [];
  let [from, read] = [tokens.length, ''];
  while (from > 0 && !read.includes(text)) read = tokens[--from]!.token + read;
  return tokens.slice(from);
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function responseUsage(usage: NonNullable<TimedChunk['usage']>): ResponseUsage {
  return {
    input_tokens: usage.prompt_tokens,
    input_tokens_details: { cached_tokens: usage.prompt_tokens_details.cached_tokens, cache_write_tokens: 0 },
    output_tokens: usage.completion_tokens,
    output_tokens_details: { reasoning_tokens: usage.completion_tokens_details.reasoning_tokens },
    total_tokens: usage.total_tokens,
  };
}
