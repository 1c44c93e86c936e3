// What is left of an answer that is generated again, without an engine: random answers, cut anywhere.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';

import { modulesFolder } from '../../scripts/build.mjs';

/** What an answer's pieces say together, by choice. */
function told(chunks) {
  const choices = new Map();
  for (const { index, token_ids, text, reasoning = '', logprobs = [], tool_calls = [], malformed_tool_calls = [], ...rest } of chunks) {
    const all = choices.get(index) ?? { tokens: [], text: '', reasoning: '', logprobs: [], calls: {}, malformed: [], ends: [], totals: 0 };
    choices.set(index, all);
    all.tokens.push(...token_ids);
    all.text += text;
    all.reasoning += reasoning;
    all.logprobs.push(...logprobs);
    for (const { index, id, type, function: part } of tool_calls) {
      const call = (all.calls[index] ??= { ids: [], types: [], names: [], arguments: '' });
      if (id !== undefined) call.ids.push(id);
      if (type !== undefined) call.types.push(type);
      if (part.name !== undefined) call.names.push(part.name);
      call.arguments += part.arguments;
    }
    all.malformed.push(...malformed_tool_calls);
    if (rest.finish_reason !== undefined) all.ends.push(rest.finish_reason);
    if (rest.usage !== undefined) all.totals += 1;
  }
  return choices;
}

test('an answer that is generated again goes on where it stood, wherever both are cut', async () => {
  const { Replay, Diverged } = await import(pathToFileURL(join(modulesFolder, 'recovery/replay.js')));
  let state = 1;
  const random = (n) => Math.floor(((state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32) * n);
  // Two choices of 40 tokens, each with a letter of text, of reasoning or of a call's arguments, in chunks of any length.
  const answer = (calls) => {
    const left = [0, 0];
    const chunks = [];
    while (left[0] < 40 || left[1] < 40) {
      const index = left[0] < 40 && (left[1] >= 40 || random(2) === 0) ? 0 : 1;
      const from = left[index];
      const to = Math.min(40, from + 1 + random(5));
      left[index] = to;
      const at = Array.from({ length: to - from }, (_, i) => from + i);
      const letters = (low, high) =>
        at.flatMap((i) => (i >= low && i < high ? [String.fromCharCode(97 + ((i * 7 + index) % 26))] : [])).join('');
      const chunk = { index, token_ids: at.map((i) => 100 * index + i), text: letters(10, 25), logprobs: at.map((id) => ({ id })) };
      if (letters(0, 10) !== '') chunk.reasoning = letters(0, 10);
      const begins = from <= 25 && to > 25;
      if (begins || letters(26, 38) !== '') {
        const head = begins ? { id: `${calls}-${index}`, type: 'function' } : {};
        chunk.tool_calls = [{ index: 0, ...head, function: { ...(begins ? { name: 'f' } : {}), arguments: letters(26, 38) } }];
      }
      if (from <= 39 && to > 39) Object.assign(chunk, { malformed_tool_calls: [{ text: 'x', reason: 'y' }], finish_reason: 'stop' });
      chunks.push(chunk);
    }
    chunks.at(-1).usage = {};
    return chunks;
  };
  for (let round = 0; round < 300; round++) {
    const replay = new Replay();
    const runs = [answer('first'), answer('second'), answer('third')];
    const whole = told(runs[0]);
    const seen = [];
    runs.forEach((chunks, run) => {
      replay.restart();
      const kept = run === 2 ? chunks : chunks.slice(0, random(chunks.length + 1));
      seen.push(...kept.flatMap((chunk) => replay.fresh(structuredClone(chunk)) ?? []));
    });
    const joined = told(seen);
    for (const [index, all] of joined) {
      // The end of a choice may come once more, with the totals.
      assert.ok(all.ends.length >= 1 && all.ends.length <= 2 && all.ends.every((end) => end === 'stop'));
      const [call] = Object.values(all.calls);
      assert.deepEqual([call.ids.length, call.types.length, call.names], [1, 1, ['f']]);
      const wanted = whole.get(index);
      wanted.calls[0].ids = call.ids;
      assert.deepEqual({ ...all, ends: 0, totals: 0 }, { ...wanted, ends: 0, totals: 0 }, `round ${round}`);
    }
    assert.equal(
      [...joined.values()].reduce((sum, { totals }) => sum + totals, 0),
      1,
    );
  }

  // Another answer is no continuation.
  const chunk = { index: 0, token_ids: [1, 2], text: 'ab' };
  const others = [
    { index: 0, token_ids: [1, 3], text: 'ab' },
    { index: 0, token_ids: [1, 2], text: 'ax' },
    { index: 0, token_ids: [1], text: 'a', finish_reason: 'stop' },
  ];
  for (const other of others) {
    const replay = new Replay();
    replay.fresh(chunk);
    replay.restart();
    assert.throws(() => replay.fresh(other), Diverged);
    const known = replay.known(2, { seed: 3 }, new Diverged('token 1'));
    assert.deepEqual(known, {
      seed: 3,
      choices: [
        { tokens: [1, 2], is_finished: false },
        { tokens: [], is_finished: false },
      ],
    });
    assert.throws(() => replay.known(2, known, new Diverged('token 1')), { code: 'internal' });
    // More came in between.
    replay.restart();
    replay.fresh({ index: 0, token_ids: [1, 2, 3], text: 'abc' });
    assert.deepEqual(replay.known(1, known, new Diverged('token 3')).choices, [{ tokens: [1, 2, 3], is_finished: false }]);
  }
  const replay = new Replay();
  replay.fresh(chunk);
  replay.restart();
  assert.equal(replay.fresh({ index: 0, token_ids: [1], text: 'a', finish_reason: 'cancelled' }).finish_reason, 'cancelled');
});
