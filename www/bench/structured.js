// What structured output adds to a token: answers that are held to a grammar beside free ones of as many tokens. Knows the package's
// public face only.

import { median } from './measure.js';

const CASES = [
  {
    // The demo model answers so by itself: what is measured is the checking.
    name: 'a schema that the model follows by itself',
    question: 'Anna is 12 years old and lives in Rome. Answer in JSON with the keys name, age and city.',
    structured_outputs: {
      json: {
        type: 'object',
        properties: { name: { type: 'string', maxLength: 20 }, age: { type: 'integer', minimum: 0, maximum: 150 }, city: { type: 'string', maxLength: 20 } },
        required: ['name', 'age', 'city'],
        additionalProperties: false,
      },
    },
  },
  {
    name: 'a schema that the model knows nothing of',
    question: 'Tell me a story about a fox.',
    structured_outputs: {
      json: {
        type: 'object',
        properties: {
          title: { type: 'string', minLength: 12, maxLength: 40 },
          animals: { type: 'array', items: { enum: ['fox', 'wolf', 'brown bear'] }, minItems: 2, maxItems: 4 },
          length: { type: 'integer', minimum: 100, maximum: 9999 },
          text: { type: 'string', minLength: 60, maxLength: 120 },
        },
        required: ['title', 'animals', 'length', 'text'],
        additionalProperties: false,
      },
    },
  },
  { name: 'any text', question: 'Tell me a story about a fox.', structured_outputs: { grammar: 'start: /(.|\\n)*/' } },
  { name: 'a regular expression', question: 'Hello!', structured_outputs: { regex: '([a-z]{2,8} ){12}[0-9]{4}' } },
];

/** Milliseconds per token of each case, free and structured, over the whole answer, and how the structured tokens came about. */
export async function measureStructured(engine, { newTokens = 96, repetitions = 5 } = {}) {
  const rows = [];
  const begin = performance.now();
  await engine.chat.completions.create({ messages: [{ role: 'user', content: 'Hello!' }], max_tokens: 1, structured_outputs: { choice: ['a', 'b'] } });
  const firstMs = performance.now() - begin;
  for (const { name, question, structured_outputs } of CASES) {
    const request = { messages: [{ role: 'user', content: question }], temperature: 0, max_tokens: newTokens };
    const structured = () => engine.chat.completions.create({ ...request, structured_outputs });
    const { usage } = await structured();
    const free = () => engine.chat.completions.create({ ...request, max_tokens: usage.completion_tokens, ignore_eos: true });
    await free();
    const [withGrammar, without] = [[], []];
    let timings;
    for (let i = 0; i < repetitions; i++) {
      without.push(await perToken(free));
      const run = await perToken(structured);
      withGrammar.push(run);
      ({ timings } = run);
    }
    const [freeMs, structuredMs] = [without, withGrammar].map((runs) => median(runs.map(({ ms }) => ms)));
    const { forced_tokens, masked_tokens, dropped_steps } = timings;
    rows.push({ name, tokens: usage.completion_tokens, free_ms_per_token: freeMs, structured_ms_per_token: structuredMs, added_percent: 100 * (structuredMs / freeMs - 1), forced_tokens, masked_tokens, dropped_steps });
  }
  return { adapter: engine.info.adapter, first_structured_request_ms: firstMs, cases: rows };
}

async function perToken(generate) {
  const begin = performance.now();
  const { usage, timings } = await generate();
  return { ms: (performance.now() - begin) / usage.completion_tokens, timings };
}
