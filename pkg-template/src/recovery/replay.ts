// What of an answer was handed out, so that the same answer, generated again, goes on where it stood. Tokens and texts may be cut into other
// chunks than before; what is in them must be the same. It knows nothing of tabs, workers or devices.

import { EngineError } from '../errors.js';
import type { Chunk, ReplayData } from '../protocol.js';

/** The answer, generated again, is another one than before. */
export class Diverged extends Error {}

/** The parts of one choice that were handed out. */
interface Told {
  tokens: number[];
  text: string;
  reasoning: string;
  calls: Map<number, { name: string; arguments: string }>;
  malformed: number;
  isFinished: boolean;
}

/** How far the answer that runs now has come in one choice. */
interface Place {
  tokens: number;
  text: number;
  reasoning: number;
  /** Of each call, the length of its arguments. */
  calls: Map<number, number>;
  malformed: number;
}

export class Replay {
  #told = new Map<number, Told>();
  #places = new Map<number, Place>();
  #isTotalled = false;

  /** The answer begins anew. */
  restart(): void {
    this.#places.clear();
  }

  /** How many tokens that were handed out the answer that runs now has not come back to. */
  missing(): number {
    const missing = [...this.#told].map(([index, { tokens }]) => tokens.length - (this.#places.get(index)?.tokens ?? 0));
    return missing.reduce((sum, count) => sum + Math.max(0, count), 0);
  }

  /** The last chunks of an answer that was cancelled and that nobody generates again, to be followed by its end. */
  cancelled(choices: number): Chunk[] {
    const unfinished = Array.from({ length: choices }, (_, index) => index).filter((index) => this.#told.get(index)?.isFinished !== true);
    return unfinished.map((index) => ({ index, text: '', token_ids: [], finish_reason: 'cancelled' }));
  }

  /**
   * What the engine has to know to take up the answer where it stands, in place of choosing its tokens again, as `before` it had. Throws if it knew
   * all that before.
   */
  known(choices: number, before: ReplayData, diverged: Diverged): ReplayData {
    const known = (told: Told | undefined) => ({ tokens: [...(told?.tokens ?? [])], is_finished: told?.isFinished ?? false });
    const all = Array.from({ length: choices }, (_, index) => known(this.#told.get(index)));
    if (before.choices !== undefined && lengthOf(all) === lengthOf(before.choices)) {
      throw new EngineError(
        'internal',
        `an answer whose tokens were given came out otherwise, at ${diverged.message}: this is a fault of rillm`,
      );
    }
    return { ...before, choices: all };
  }

  /** What is new in a chunk; undefined if nothing is. Throws {@link Diverged} if the answer is another one than before. */
  fresh(chunk: Chunk): Chunk | undefined {
    const { index, token_ids, logprobs, text, reasoning, tool_calls, malformed_tool_calls, ...rest } = chunk;
    const told = entry(this.#told, index, newTold);
    const place = entry(this.#places, index, newPlace);

    const known = Math.min(token_ids.length, told.tokens.length - place.tokens);
    const wrong = token_ids.slice(0, known).findIndex((id, at) => id !== told.tokens[place.tokens + at]);
    if (wrong !== -1) throw new Diverged(`token ${place.tokens + wrong}`);
    const tokens = token_ids.slice(known);
    told.tokens.push(...tokens);
    place.tokens += token_ids.length;

    const fresh: Chunk = { ...rest, index, token_ids: tokens, text: freshText('text', text, told, place) };
    // Tokens that the engine was told have none.
    if (logprobs !== undefined) fresh.logprobs = logprobs.slice(Math.max(0, logprobs.length - tokens.length));
    const thought = reasoning === undefined ? '' : freshText('reasoning', reasoning, told, place);
    if (thought !== '') fresh.reasoning = thought;
    const calls = freshCalls(tool_calls ?? [], told, place);
    if (calls.length > 0) fresh.tool_calls = calls;
    const malformed = (malformed_tool_calls ?? []).slice(Math.max(0, told.malformed - place.malformed));
    if (malformed.length > 0) fresh.malformed_tool_calls = malformed;
    place.malformed += malformed_tool_calls?.length ?? 0;
    told.malformed = Math.max(told.malformed, place.malformed);

    const isBehind = place.tokens < told.tokens.length || place.text < told.text.length || place.reasoning < told.reasoning.length;
    // What was cancelled ends wherever it is.
    if (chunk.finish_reason !== undefined && chunk.finish_reason !== 'cancelled' && isBehind) throw new Diverged('the end');
    const ends = (chunk.finish_reason !== undefined && !told.isFinished) || (chunk.usage !== undefined && !this.#isTotalled);
    told.isFinished ||= chunk.finish_reason !== undefined;
    this.#isTotalled ||= chunk.usage !== undefined;
    return ends || tokens.length > 0 || fresh.text !== '' || thought !== '' || calls.length > 0 || malformed.length > 0 ? fresh : undefined;
  }
}

const lengthOf = (choices: { tokens: number[] }[]) => choices.reduce((sum, { tokens }) => sum + tokens.length, 0);

function freshText(part: 'text' | 'reasoning', text: string, told: Told, place: Place): string {
  const known = told[part].slice(place[part], place[part] + text.length);
  if (!text.startsWith(known)) throw new Diverged(`the ${part} at ${place[part]}`);
  const fresh = text.slice(known.length);
  told[part] += fresh;
  place[part] += text.length;
  return fresh;
}

function freshCalls(deltas: NonNullable<Chunk['tool_calls']>, told: Told, place: Place): NonNullable<Chunk['tool_calls']> {
  return deltas.flatMap((delta) => {
    const { name, arguments: text } = delta.function;
    const call = told.calls.get(delta.index);
    const at = place.calls.get(delta.index) ?? 0;
    place.calls.set(delta.index, at + text.length);
    if (call === undefined) {
      told.calls.set(delta.index, { name: name ?? '', arguments: text });
      return [delta];
    }
    const known = call.arguments.slice(at, at + text.length);
    if ((name !== undefined && name !== call.name) || !text.startsWith(known)) throw new Diverged(`call ${delta.index}`);
    const fresh = text.slice(known.length);
    call.arguments += fresh;
    // The call has its id and its name from before.
    return fresh === '' ? [] : [{ index: delta.index, function: { arguments: fresh } }];
  });
}

function entry<Value>(map: Map<number, Value>, index: number, make: () => Value): Value {
  const value = map.get(index) ?? make();
  map.set(index, value);
  return value;
}

const newTold = (): Told => ({ tokens: [], text: '', reasoning: '', calls: new Map(), malformed: 0, isFinished: false });
const newPlace = (): Place => ({ tokens: 0, text: 0, reasoning: 0, calls: new Map(), malformed: 0 });
