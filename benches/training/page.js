// Runs by itself and posts: each figure to PATH/log, and at the end to PATH/done.

import { Engine } from 'rillm';

const parameters = new URLSearchParams(location.search);
const number = (name, otherwise) => Number(parameters.get(name) ?? otherwise);
const path = parameters.get('post') ?? '';
const post = (where, what) => fetch(`${path}/${where}`, { method: 'POST', body: JSON.stringify(what) });
const rank = number('rank', 16);
const WARM_UP = 8;

/** Numbers as tables show them: the median and the range. */
function summary(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const rounded = (value) => Number(value.toPrecision(4));
  const middle = sorted.length >> 1;
  const median = sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  return { median: rounded(median), range: [rounded(sorted[0]), rounded(sorted.at(-1))] };
}

/** A text of capital letters that takes `tokens` tokens of a training, or one or two fewer. Another `seed` gives another text. */
async function textOf(engine, tokens, seed) {
  let state = seed * 7919 + 1;
  const letter = () => {
    state = (state * 1103515245 + 12345) % 2147483648;
    return String.fromCharCode(65 + ((state >> 16) % 26));
  };
  const letters = Array.from({ length: tokens * 2 }, letter).join('');
  const fits = async (length) => (await engine.train.plan({ data: [letters.slice(0, length)] })).longest <= tokens;
  let [least, most] = [2, letters.length];
  while (least < most) {
    const length = Math.ceil((least + most) / 2);
    if (await fits(length)) least = length;
    else most = length - 1;
  }
  return letters.slice(0, least);
}

const promptOf = (tokens, start) => Array.from({ length: tokens }, (_, i) => 300 + ((i * 37 + start * 101) % 900));

async function answered(engine, prompt, tokens, more) {
  const answer = await engine.completions.create({ prompt, max_tokens: tokens, temperature: 0, ignore_eos: true, ...more });
  if (answer.usage.completion_tokens !== tokens) throw new Error(`${answer.usage.completion_tokens} tokens in place of ${tokens}`);
  return answer;
}

/** Tokens per second after a prompt, the first ones not counted, and the dispatches of a token. The first run is dropped. */
async function decoding(engine, what) {
  const [tokens, repetitions] = [number('tokens', 128), number('repetitions', 4)];
  const prompt = promptOf(number('prompt', 512), 0);
  const speeds = [];
  for (let i = 0; i <= repetitions; i++) {
    const { timings } = await answered(engine, prompt, WARM_UP + tokens);
    if (i > 0) speeds.push(timings.tokens_per_s);
  }
  const dispatches = [];
  for (const length of [WARM_UP, WARM_UP + tokens]) {
    const before = (await engine.stats()).dispatches;
    await answered(engine, prompt, length);
    dispatches.push((await engine.stats()).dispatches - before);
  }
  const prefill = [];
  for (let i = 1; i <= 4; i++) {
    const { timings } = await answered(engine, promptOf(prompt.length, i), 1);
    if (i > 1) prefill.push(timings.prompt_tokens_per_s);
  }
  await post('log', {
    decode: what,
    tokens_per_s: summary(speeds),
    dispatches_per_token: (dispatches[1] - dispatches[0]) / tokens,
    prefill_tokens_per_s: summary(prefill),
  });
}

/** Decoding without an adapter, with one on all matrices, with one of the scale 0, and when it is unloaded. */
async function adapter(engine) {
  await decoding(engine, 'plain');
  const data = [await textOf(engine, 64, 1)];
  const trained = await engine.train.lora({ data, rank, epochs: 1, learningRate: 1e-3, name: 'all' });
  await post('log', { adapter: trained.adapter, error: trained.error?.message });
  for (let round = 1; round <= 2; round++) {
    await decoding(engine, `scale 1, round ${round}`);
    await engine.adapters.setScale('all', 0);
    await decoding(engine, `scale 0, round ${round}`);
    await engine.adapters.setScale('all', 1);
  }
  await engine.adapters.unload('all');
  await decoding(engine, 'unloaded');
}

const totalOf = async (engine) => (await engine.stats()).memory;

/** The time of steps and what they take, told before and measured. */
async function steps(engine) {
  for (const length of (parameters.get('lengths') ?? '128,512').split(',').map(Number)) {
    const count = number('steps', 12);
    const data = [];
    for (let i = 0; i < count; i++) data.push(await textOf(engine, length, i + 1));
    const options = { data, rank, epochs: 1, name: `steps-${length}`, maxLength: length };
    const plan = await engine.train.plan(options);
    const before = await totalOf(engine);
    await engine.resetStats();
    const counted = await engine.stats();
    const times = [];
    let last;
    let tokens;
    const trained = await engine.train.lora({
      ...options,
      onProgress: (event) => {
        const now = performance.now();
        if (event.type === 'step') {
          if (last !== undefined) times.push((now - last) / 1000);
          tokens = event.tokens;
        }
        last = now;
      },
    });
    const after = await engine.stats();
    // The first two compile and fill pools.
    const seconds = summary(times.slice(2));
    await post('log', {
      training: length,
      longest: plan.longest,
      steps: plan.steps,
      parameters: plan.parameters,
      seconds_a_step: seconds,
      first_steps: times.slice(0, 2),
      tokens_per_s: tokens / seconds.median,
      planned_mb: plan.memoryBytes / 1e6,
      measured_mb: (after.memory.peak - before.total) / 1e6,
      pools_before_mb: before.pools / 1e6,
      dispatches_a_step: (after.dispatches - counted.dispatches) / plan.steps,
      losses: [trained.losses[0], trained.losses.at(-1)],
    });
    await engine.adapters.unload(options.name);
  }
}

/** Answers while an adapter is trained. */
async function beside(engine) {
  const length = number('beside', 128);
  const data = [];
  for (let i = 0; i < 6; i++) data.push(await textOf(engine, length, i + 1));
  const tokens = number('tokens', 128);
  const speed = async (start) => {
    const begin = performance.now();
    const { timings } = await answered(engine, promptOf(16, start), tokens);
    return { decode: timings.tokens_per_s, seconds: (performance.now() - begin) / 1000 };
  };
  const alone = [];
  for (let i = 0; i < 4; i++) alone.push(await speed(i));
  const controller = new AbortController();
  const marks = [];
  const training = engine.train
    .lora({
      data,
      rank,
      epochs: 1000,
      name: 'beside',
      signal: controller.signal,
      onProgress: (event) => void (event.type === 'step' && marks.push(performance.now())),
    })
    .catch((error) => error.code);
  while (marks.length < 4) await new Promise((resolve) => setTimeout(resolve, 20));
  const waited = performance.now();
  await new Promise((resolve) => setTimeout(resolve, 4000));
  const begin = performance.now();
  const during = [];
  while (during.length < 12 && performance.now() - begin < 20_000) during.push(await speed(10 + during.length));
  const end = performance.now();
  const rate = (from, to) => marks.filter((mark) => mark >= from && mark < to).length / ((to - from) / 1000);
  controller.abort();
  const ended = await training;
  await post('log', {
    beside: length,
    answer_alone: summary(alone.slice(1).map(({ decode }) => decode)),
    answer_during: summary(during.map(({ decode }) => decode)),
    seconds_of_an_answer: {
      alone: summary(alone.slice(1).map(({ seconds }) => seconds)),
      during: summary(during.map(({ seconds }) => seconds)),
    },
    steps_a_second: { alone: rate(waited, begin), during: rate(begin, end) },
    answers: during.length,
    training: ended,
  });
}

/** What was trained, as files, and what the model says with it. */
async function files(engine) {
  const chat = (question, answer) => ({
    messages: [
      { role: 'user', content: question },
      { role: 'assistant', content: answer },
    ],
  });
  const data = [chat('wug?', 'dax blick'), chat('toma?', 'zup')];
  const trained = await engine.train.lora({ data, rank: 8, epochs: 30, learningRate: 1e-2, name: 'game' });
  const said = await engine.chat.completions.create({ messages: [{ role: 'user', content: 'wug?' }], temperature: 0, max_tokens: 12 });
  await post('log', { learnt: said.choices[0].message.content, losses: [trained.losses[0], trained.losses.at(-1)] });
  const base64 = async (file) => {
    const bytes = new Uint8Array(await file.arrayBuffer());
    let text = '';
    for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768));
    return btoa(text);
  };
  for (const format of ['peft', 'gguf']) {
    for (const file of trained.files(format)) await post('log', { file: file.name, base64: await base64(file) });
  }
  const ids = await engine.tokenize('Once upon a time there was a small boat.', { add_special: true });
  for (const adapters of [true, false]) {
    if (!adapters) await engine.adapters.setScale('game', 0);
    const logits = await engine.forward(ids);
    const values = await logits.readback();
    await post('log', {
      logits: adapters ? 'with' : 'without',
      ids: [...ids],
      shape: logits.shape,
      base64: await base64(new Blob([values])),
    });
  }
}

/** GPU time by kernel, of decoded tokens and of a prompt, without an adapter and with one. */
async function kernels(engine) {
  const trained = await engine.train.lora({ data: [await textOf(engine, 64, 1)], rank, epochs: 1, name: 'timed' });
  const measured = { decode: [promptOf(16, 1), WARM_UP + number('tokens', 128)], prefill: [promptOf(number('prompt', 512), 1), 1] };
  for (const scale of [0, 1]) {
    await engine.adapters.setScale('timed', scale);
    for (const [what, [prompt, tokens]] of Object.entries(measured)) {
      // Its commands are recorded and its kernels compiled by the first.
      await answered(engine, [...prompt].reverse(), tokens);
      await engine.setProfiling(true);
      await engine.kernelTimes();
      await answered(engine, prompt, tokens);
      const times = await engine.kernelTimes();
      await engine.setProfiling(false);
      await post('log', { kernels: what, scale, rank: trained.adapter?.rank, times });
    }
  }
  await engine.adapters.unload('timed');
}

const PARTS = { adapter, steps, beside, files, kernels };

async function run() {
  const model = new URL(parameters.get('model'), document.baseURI).href;
  const begin = performance.now();
  const options = { training: true, cache: 'none', contextLength: number('context', 1024) };
  if (parameters.has('precision')) options.precision = parameters.get('precision');
  const engine = await Engine.load(model, options);
  const { adapter: gpu, precision } = engine.info;
  await post('log', { model, gpu: gpu?.description ?? gpu, precision, load_ms: performance.now() - begin, memory: await totalOf(engine) });
  for (const name of (parameters.get('parts') ?? 'adapter,steps,beside').split(',')) {
    await PARTS[name](engine).catch((error) => post('log', { failed: name, code: error.code, message: error.message ?? String(error) }));
  }
  await engine.dispose();
}

run().then(
  () => post('done', {}),
  (error) => post('done', { error: { code: error.code, message: error.message ?? String(error) } }),
);
