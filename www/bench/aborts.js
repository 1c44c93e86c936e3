// How long an abort takes: milliseconds from `abort()` until the caller hears of it, and until the engine has answered a short request of
// somebody else's, in each phase of a load and of requests. Knows the package's public face only.

import { complete, median, promptOf, requestOf } from './measure.js';

/** What is aborted runs this many times as long as a short one, so that it has not ended when it is aborted. */
const LONGER = 4;
const LEAST_MS = 200;
const TRAINING = [
  {
    messages: [
      { role: 'user', content: 'wug?' },
      { role: 'assistant', content: 'dax blick' },
    ],
  },
];

/**
 * Aborts what the model can do, `repetitions` times in each phase, at times spread evenly over what it takes. With `training` it is loaded once more
 * with what trains. `onRow` is called with each row.
 * → {model, adapter, device, settings, rows: [{phase, aborts, late, whole_ms, median_ms, worst_ms, next_ms, next_worst_ms, short_ms}]}: `late` are those that
 * had ended before, `next_ms` is until a short request was answered, which takes `short_ms` where nothing runs.
 */
export async function measureAborts(
  Engine,
  models,
  source,
  { promptTokens = 1000, newTokens = 256, repetitions = 12, training = false, onRow, ...load } = {},
) {
  const rows = [];
  const measure = async (phase, work, short) => {
    const row = { phase, ...(await abortsOf(work, repetitions, short)) };
    rows.push(row);
    onRow?.(row);
  };
  const loading = (options) => async (signal) => (await Engine.load(source, { ...load, ...options, signal })).dispose();
  // Kernels are compiled by a load before.
  await loading({ cache: 'none' })();
  await measure('load, from the network', loading({ cache: 'none' }));
  await models.delete(source);
  await models.download(source);
  await measure('load, from the cache', loading({}));
  const engine = await Engine.load(source, load);
  try {
    const { short, phases } = await phasesOf(engine, { promptTokens, newTokens });
    for (const [phase, work] of phases) await measure(phase, work, short);
    const { adapter, device, layers, name, context_length } = engine.info;
    const about = { model: name, adapter: adapter.description || adapter.vendor, device, layers, context_length };
    if (training) await abortTrainings(Engine, source, load, measure);
    return { ...about, settings: { promptTokens, newTokens, repetitions }, rows };
  } finally {
    await engine.dispose();
    await models.delete(source);
  }
}

/** → {phases: [phase, work(signal)], short} of what this model does, and a request that takes little. */
async function phasesOf(engine, { promptTokens, newTokens }) {
  const { embeds, reranks, context_length } = engine.info;
  const tokens = Math.min(promptTokens, context_length - 16);
  if (!embeds && !reranks) return chatPhases(engine, tokens, Math.min(newTokens, context_length - 32));
  const text = await promptOf(engine, Math.min(128, tokens >> 1), 0);
  const phases = [];
  let short;
  if (embeds) {
    const embed = (count, signal) => engine.embeddings.create({ input: Array(count).fill(text) }, { signal });
    const count = await enough((count) => embed(count));
    short = () => embed(1);
    phases.push(['embeddings', (signal) => embed(count, signal)]);
  }
  if (reranks) {
    const rank = (count, signal) => engine.rerank.create({ query: 'boats', documents: Array(count).fill(text) }, { signal });
    const count = await enough((count) => rank(count));
    short = () => rank(1);
    phases.push(['rerank', (signal) => rank(count, signal)]);
  }
  return { phases, short };
}

async function chatPhases(engine, tokens, newTokens) {
  const text = await promptOf(engine, tokens - 8, 0);
  let next = 1;
  // None begins as another one did, so the prompt cache has none of them.
  const fresh = () => `${next++} ${text}`;
  const chat = () => [{ role: 'user', content: fresh().slice(0, Math.floor(0.9 * text.length)) }];
  const short = await promptOf(engine, 16, 0);
  await complete(engine, short, newTokens);
  const session = await engine.sessions.save(chat());
  const stream = async (signal) => {
    let last;
    for await (const chunk of await engine.completions.create({ ...requestOf(short, newTokens), stream: true }, { signal })) last = chunk;
    if (last?.choices[0].finish_reason === 'cancelled') throw Object.assign(new Error(), { code: 'aborted' });
  };
  const phases = [
    ['prompt', (signal) => engine.completions.create(requestOf(fresh(), 1), { signal })],
    ['answer', (signal) => engine.completions.create(requestOf(short, newTokens), { signal })],
    ['answer, streamed', stream],
    ['session, saved after its prompt', (signal) => engine.sessions.save(chat(), { signal })],
    ['session, restored', (signal) => engine.sessions.restore(session, { signal })],
  ];
  return { phases, short: () => complete(engine, short, 1) };
}

async function abortTrainings(Engine, source, load, measure) {
  const engine = await Engine.load(source, { ...load, training: true });
  try {
    let next = 0;
    const train = (epochs, signal) => engine.train.lora({ data: TRAINING, name: `aborted ${next++}`, epochs, signal });
    const unloaded = async (epochs) => engine.adapters.unload((await train(epochs)).adapter.name);
    await unloaded(1);
    const epochs = await enough(unloaded);
    await measure(
      'training',
      async (signal) => {
        const { adapter, error } = await train(epochs, signal);
        await engine.adapters.unload(adapter.name);
        if (error !== undefined) throw error;
      },
      () => engine.completions.create(requestOf('a', 1)),
    );
  } finally {
    await engine.dispose();
  }
}

/** How many take long enough to be aborted in their middle. */
async function enough(work) {
  await work(1);
  const begin = performance.now();
  await work(4);
  const ms = (performance.now() - begin) / 4;
  return Math.max(LONGER, Math.ceil((LONGER * LEAST_MS) / ms));
}

/** Aborts something at times spread over what it takes when nobody does. */
async function abortsOf(work, repetitions, short) {
  await work();
  const whole_ms = await msOf(work);
  const heard = [];
  const next = [];
  for (let run = 0; run < repetitions; run++) {
    const { ms, aborted } = await abortAfter((whole_ms * (run + 0.5)) / repetitions, work);
    if (ms === undefined) continue;
    heard.push(ms);
    if (short === undefined) continue;
    await short();
    next.push(performance.now() - aborted);
  }
  const counts = { aborts: heard.length, late: repetitions - heard.length, whole_ms };
  if (heard.length === 0) return counts;
  const figures = { ...counts, median_ms: median(heard), worst_ms: Math.max(...heard) };
  return short === undefined
    ? figures
    : { ...figures, next_ms: median(next), next_worst_ms: Math.max(...next), short_ms: await msOf(short) };
}

async function msOf(work) {
  const begin = performance.now();
  await work();
  return performance.now() - begin;
}

/** When it was aborted, and milliseconds from then to its rejection; without them if it came too late. */
async function abortAfter(after, work) {
  const controller = new AbortController();
  let aborted;
  const timer = setTimeout(() => {
    aborted = performance.now();
    controller.abort();
  }, after);
  try {
    await work(controller.signal);
    return { aborted };
  } catch (error) {
    if (error?.code !== 'aborted') throw error;
    return { aborted, ms: performance.now() - aborted };
  } finally {
    clearTimeout(timer);
  }
}

/** The rows as a table of words. */
export function abortsTable({ rows, device }) {
  const number = (value) => (value === undefined ? '' : value.toFixed(1));
  return {
    title: `Aborts on the ${device === 'cpu' ? 'CPU' : 'GPU'}`,
    columns: ['', 'aborts', 'median ms', 'worst ms', 'next answer, median', 'worst', 'that answer alone', 'unaborted', 'too late'],
    rows: rows.map((row) => [
      row.phase,
      String(row.aborts),
      number(row.median_ms),
      number(row.worst_ms),
      number(row.next_ms),
      number(row.next_worst_ms),
      number(row.short_ms),
      number(row.whole_ms),
      String(row.late),
    ]),
  };
}
