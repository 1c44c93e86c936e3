// What structured output adds to a token: answers that are held to a grammar beside free ones of as many tokens. Knows the package's
// public face only.

import { median } from './measure.js';

const STORIES = [
  'Tell me a story about a fox.',
  'Tell me a story about a dog.',
  'Tell me a story about a wolf.',
  'Tell me a story about a cat.',
];

const person = (name, age, city) => `${name} is ${age} years old and lives in ${city}. Answer in JSON with the keys name, age and city.`;

const CASES = [
  {
    // The demo model answers so by itself: what is measured is the checking.
    name: 'a schema that the model follows by itself',
    questions: [person('Anna', 12, 'Rome'), person('Tom', 30, 'Paris'), person('Ben', 7, 'Oslo'), person('Nora', 51, 'Berlin')],
    structured_outputs: {
      json: {
        type: 'object',
        properties: {
          name: { type: 'string', maxLength: 20 },
          age: { type: 'integer', minimum: 0, maximum: 150 },
          city: { type: 'string', maxLength: 20 },
        },
        required: ['name', 'age', 'city'],
        additionalProperties: false,
      },
    },
  },
  {
    name: 'a schema that the model knows nothing of',
    questions: STORIES,
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
  { name: 'any text', questions: STORIES, structured_outputs: { grammar: 'start: /(.|\\n)*/' } },
  { name: 'a regular expression', questions: ['Hello!', ...STORIES], structured_outputs: { regex: '([a-z]{2,8} ){12}[0-9]{4}' } },
];

/**
 * Milliseconds per token of each case, free and structured, over whole answers, and how the structured tokens came about. What is
 * learned of a grammar helps its later answers, so the first one is told apart from the `repetitions` that follow; no two answers are
 * the same.
 */
export async function measureStructured(engine, { newTokens = 96, repetitions = 8 } = {}) {
  const rows = [];
  const begin = performance.now();
  await engine.chat.completions.create({
    messages: [{ role: 'user', content: 'Hello!' }],
    max_tokens: 1,
    structured_outputs: { choice: ['a', 'b'] },
  });
  const firstMs = performance.now() - begin;
  for (const { name, questions, structured_outputs } of CASES) {
    const runs = [];
    for (let i = 0; i <= repetitions; i++) {
      const request = {
        messages: [{ role: 'user', content: questions[i % questions.length] }],
        temperature: 0.8,
        seed: i,
        max_tokens: newTokens,
      };
      // What only a question's first answer does, like taking its prompt in, is in neither of the two that are compared.
      await timed(engine, { ...request, max_tokens: 1 });
      const structured = await timed(engine, { ...request, structured_outputs });
      const free = await timed(engine, { ...request, max_tokens: structured.tokens, ignore_eos: true });
      runs.push({ structured, free });
    }
    const [first, ...later] = runs;
    rows.push({ name, first: compared([first]), later: compared(later) });
  }
  return { adapter: engine.info.adapter, first_structured_request_ms: firstMs, cases: rows };
}

/** Sums of runs, per token, and by how much structured ones took longer: in all, and the median of single answers. */
function compared(runs) {
  const sum = (of) => runs.map(of).reduce((a, b) => a + b, 0);
  const tokens = sum(({ structured }) => structured.tokens);
  const [free, structured] = [sum(({ free }) => free.ms) / tokens, sum(({ structured }) => structured.ms) / tokens];
  const [forced, missed, dropped] = ['forced_tokens', 'missed_masks', 'dropped_steps'].map((count) =>
    sum(({ structured }) => structured.timings[count]),
  );
  return {
    answers: runs.length,
    tokens,
    free_ms_per_token: free,
    structured_ms_per_token: structured,
    added_percent: 100 * (structured / free - 1),
    median_added_percent: median(runs.map(({ structured, free }) => 100 * (structured.ms / free.ms - 1))),
    forced_tokens: forced,
    missed_masks: missed,
    dropped_steps: dropped,
  };
}

async function timed(engine, request) {
  const begin = performance.now();
  const { usage, timings } = await engine.chat.completions.create(request);
  return { ms: performance.now() - begin, tokens: usage.completion_tokens, timings };
}
