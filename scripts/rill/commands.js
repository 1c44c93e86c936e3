// The commands of scripts/rill.mjs, as they run in the page on the packed package. Each takes plain data and returns plain
// data. Knows nothing of files or of the command line.

import { Engine, models, renderTemplate } from 'rillm';
import { abortsTable, measureAborts } from '/bench/aborts.js';
import { countWarmToken, measureDecode, measureDispatch, measurePrefill } from '/bench/measure.js';
import { framesTable, measureFrames } from '/bench/frames.js';
import { measureLoads } from '/bench/load.js';
import { textOf } from '/bench/report.js';
import { measureRequests } from '/bench/requests.js';
import { measureStructured } from '/bench/structured.js';
import { runSuite } from '/bench/suite.js';

async function withEngine(model, use, options = {}) {
  // The browser's profile ends with the command.
  const engine = await Engine.load(model, { cache: 'none', ...options });
  try {
    return await use(engine);
  } finally {
    await engine.dispose();
  }
}

const commands = {
  generate: ({ model, load, precision, autotune, prompt, messages, raw, settings }) =>
    withEngine(
      model,
      async (engine) => {
        const chat = messages ?? (engine.info.has_chat_template && !raw ? [{ role: 'user', content: prompt }] : undefined);
        const answer = chat
          ? await engine.chat.completions.create({ messages: chat, ...settings })
          : await engine.completions.create({ prompt, ...settings });
        const [choice] = answer.choices;
        return {
          text: chat ? (choice.message.content ?? '') : choice.text,
          ...(chat && { message: choice.message }),
          ...(choice.logprobs && { logprobs: choice.logprobs }),
          ...(answer.choices.length > 1 && { choices: answer.choices }),
          token_ids: choice.token_ids,
          finish_reason: choice.finish_reason,
          usage: answer.usage,
          timings: answer.timings,
          stats: await engine.stats(),
        };
      },
      { ...load, precision, autotune },
    ),

  // The numbers may be hundreds of megabytes: they go to the command line as the body of a request.
  logits: ({ model, load, precision, autotune, ids }) =>
    withEngine(
      model,
      async (engine) => {
        const tensor = await engine.forward(ids);
        const logits = await tensor.readback();
        const response = await fetch('/logits', { method: 'POST', body: logits });
        if (!response.ok) throw new Error(`handing over the logits failed: status ${response.status}`);
        return { shape: [...tensor.shape], dtype: tensor.dtype };
      },
      { ...load, precision, autotune },
    ),

  tokenize: ({ model, load, text, options }) =>
    withEngine(model, async (engine) => ({ ids: [...(await engine.tokenize(text, options))] }), load),

  inspect: ({ model, load, options }) => Engine.inspect(model, { ...load, ...options }),

  embed: ({ model, load, text, settings }) =>
    withEngine(
      model,
      async (engine) => {
        const { data, usage } = await engine.embeddings.create({ input: text, ...settings });
        return { embedding: data[0].embedding, usage };
      },
      load,
    ),

  rerank: ({ model, load, query, documents, settings }) =>
    withEngine(model, (engine) => engine.rerank.create({ query, documents, ...settings }), load),

  classify: ({ model, load, text }) => withEngine(model, (engine) => engine.classify.create({ input: text }), load),

  template: async ({ template, context }) => ({ text: await renderTemplate(template, context) }),

  bench: ({ model, precision, autotune, settings }) =>
    runSuite(Engine, model, {
      settings: { ...settings, precision, autotune },
      onProgress: ({ done, total, text }) => console.log(`${done}/${total} ${text}`),
    }),
  'bench decode': async ({ model, precision, autotune, settings }) => ({
    ...(await withEngine(model, (engine) => measureDecode(engine, settings), { precision, autotune })),
    per_warm_token: await withEngine(model, (engine) => countWarmToken(engine, settings), { precision, autotune, worker: false }),
  }),
  'bench prefill': ({ model, precision, autotune, settings }) =>
    withEngine(model, (engine) => measurePrefill(engine, settings), { precision, autotune }),
  'bench requests': ({ model, precision, autotune, settings }) =>
    measureRequests(Engine, model, { ...settings, precision, autotune, onRow: (row) => console.log(JSON.stringify(row)) }),
  'bench structured': ({ model, precision, autotune, settings }) =>
    withEngine(model, (engine) => measureStructured(engine, settings), { precision, autotune }),
  'bench frames': async ({ model, precision, autotune, settings }) => {
    const onRow = (row) => console.log(JSON.stringify(row));
    const report = await measureFrames(Engine, model, { ...settings, precision, autotune, onRow });
    console.log(textOf([framesTable(report)]));
    return report;
  },
  'bench aborts': async ({ model, precision, autotune, settings }) => {
    const onRow = (row) => console.log(JSON.stringify(row));
    const report = await measureAborts(Engine, models, model, { ...settings, precision, autotune, onRow });
    console.log(textOf([abortsTable(report)]));
    return report;
  },
  'bench load': ({ model, autotune, settings }) => measureLoads(Engine, models, model, { ...settings, autotune }),
  // A wasm of its own: the package has no benchmark in it.
  'bench dispatch': async () => {
    const { default: init, benchDispatch } = await import('/bench-wasm/rillm_tensor.js');
    await init({ module_or_path: '/bench-wasm/rillm_tensor_bg.wasm' });
    return measureDispatch(benchDispatch);
  },
};

/** Runs one command; failures come back as data, since an Error loses its code on the way out of the page. */
export async function runCommand(name, parameters) {
  try {
    return await commands[name](parameters);
  } catch (error) {
    return { error: { code: error?.code ?? 'internal', message: error?.message ?? String(error) } };
  }
}
