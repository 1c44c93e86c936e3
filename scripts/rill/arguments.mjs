// The command line of scripts/rill.mjs: what may be written, and what the commands get from it. Knows nothing of browsers.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

import { root } from '../command.mjs';

export const USAGE = `usage: npm run -s rill -- COMMAND

  generate --model MODEL (--prompt TEXT [--raw] | --messages FILE.json)
           [--max-tokens N] [--temperature T] [--top-k K] [--top-p P] [--min-p P] [--seed S] [--ignore-eos]
           [--json-schema FILE.json] [--tools FILE.json] [--set FIELD=JSON …] [--context-length N] [--kv-cache TYPE]
           The model is a GGUF file, or a Hugging Face folder.
           The prompt is a user's message where the model has a chat template, a text to continue where it has
           none or with --raw. The file holds an array of messages, or an object {messages, tools, …}.
           --set sets any other field of the request, such as --set logprobs=true; several are possible.
  logits   --model MODEL --ids FILE.json --out FILE.npy [--precision fast|exact]
           The precision is exact unless said otherwise.
  tokenize --model MODEL --text TEXT [--add-special]
  inspect  --model MODEL [--context-length N]
           what the headers say: architecture, types, bytes on the GPU, and what speaks against loading it here
  embed    --model MODEL --text TEXT [--dimensions N]
  rerank   --model MODEL --query TEXT --document TEXT [--document TEXT …] [--top-n N]
           the documents in the order of their relevance
  classify --model MODEL --text TEXT
  template --template FILE --context FILE.json
  bench    [--model PATH|URL] [--json] [--prompt-tokens N] [--new-tokens N] [--repetitions N] [--context-length N]
           everything, as tables or with --json as an object; without --model, the demo model
  bench decode   --model PATH|URL [--prompt-tokens N] [--new-tokens N] [--repetitions N]
  bench prefill  --model PATH|URL [--prompt-tokens N] [--repetitions N]
  bench requests --model PATH|URL [--prompt-tokens N] [--new-tokens N] [--repetitions N]
           plain, sampled, structured and speculating ones, one at a time and four at once
  bench structured --model PATH|URL [--new-tokens N] [--repetitions N]
           what holding answers to a grammar adds to a token: the first answer, and N later ones
  bench load     --model PATH|URL [--repetitions N]
           kept nowhere, downloaded and kept, and from the cache
  bench frames   --model PATH|URL [--prompt-tokens N] [--new-tokens N] [--seconds N] [--repetitions N] [--context-length N]
           milliseconds between the frames of a page that draws, while the model is loaded and tuned, decodes and takes prompts in, with
           either kind of smoothness
  bench aborts   --model PATH|URL [--device gpu|cpu] [--training] [--prompt-tokens N] [--new-tokens N] [--repetitions N]
           milliseconds from an abort to its rejection, in each phase of a load and of what the model does
  bench dispatch [--model PATH|URL]
           needs no model; one that is given is not looked at
  bench ops      [--repetitions N]
           what an operation of rillm/tensor costs its thread; needs no model

  MODEL is a GGUF file, the first file of a split one, a folder with safetensors, a URL of any of them (a folder's ends in /), or
  hf:owner/name[@revision][/file or :quantisation].
  --file NAME                 of a folder, the file that is the model
  --quantize q8_0|q6_k|q4_k|q4_0|iq4_nl
                              weights of plain numbers, while they are loaded
  --hub URL, --token TOKEN    of hf:…: another hub than huggingface.co, and an access token
  --adapter swiftshader|gpu   which adapter; without it, a real GPU where there is one
  --precision fast|exact      of generate and bench too: how exact activations are; without it, what the engine takes
  --autotune auto|always|off  of generate, logits and bench: whether kernels are tuned to the adapter while loading

The last line of stdout is one JSON object (bench without a second word prints tables unless --json is given). A failure is {"error":{"code","message"}} with exit status 1.`;

/** What is measured when nobody says what. */
const DEMO_MODEL = join(root, 'models/demo/rillm-demo-q8_0.gguf');

/** A failure that becomes the JSON answer. */
export class CommandError extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

const invalid = (message) => new CommandError('invalid_usage', `${message}. ${USAGE}`);

const AUTOTUNE = ['auto', 'always', 'off'];

const text = { type: 'string' };
const texts = { type: 'string', multiple: true };
const flag = { type: 'boolean' };
/** How a model is loaded. */
const LOAD = { file: text, quantize: text, hub: text, token: text };
const COMMANDS = {
  generate: {
    model: text,
    ...LOAD,
    precision: text,
    autotune: text,
    prompt: text,
    raw: flag,
    messages: text,
    'max-tokens': text,
    temperature: text,
    'top-k': text,
    'top-p': text,
    'min-p': text,
    seed: text,
    'ignore-eos': flag,
    'json-schema': text,
    tools: text,
    set: texts,
    'context-length': text,
    'kv-cache': text,
  },
  logits: { model: text, ...LOAD, precision: text, autotune: text, ids: text, out: text },
  tokenize: { model: text, ...LOAD, text: text, 'add-special': flag },
  inspect: { model: text, ...LOAD, 'context-length': text },
  embed: { model: text, ...LOAD, text: text, dimensions: text },
  rerank: { model: text, ...LOAD, query: text, document: texts, 'top-n': text },
  classify: { model: text, ...LOAD, text: text },
  template: { template: text, context: text },
  bench: {
    model: text,
    precision: text,
    autotune: text,
    json: flag,
    'prompt-tokens': text,
    'new-tokens': text,
    repetitions: text,
    'context-length': text,
  },
  'bench decode': { model: text, precision: text, autotune: text, 'prompt-tokens': text, 'new-tokens': text, repetitions: text },
  'bench prefill': { model: text, precision: text, autotune: text, 'prompt-tokens': text, repetitions: text },
  'bench requests': { model: text, precision: text, autotune: text, 'prompt-tokens': text, 'new-tokens': text, repetitions: text },
  'bench structured': { model: text, precision: text, autotune: text, 'new-tokens': text, repetitions: text },
  'bench load': { model: text, autotune: text, repetitions: text },
  'bench frames': {
    model: text,
    precision: text,
    autotune: text,
    'prompt-tokens': text,
    'new-tokens': text,
    seconds: text,
    repetitions: text,
    'context-length': text,
  },
  'bench aborts': {
    model: text,
    device: text,
    training: flag,
    precision: text,
    autotune: text,
    'prompt-tokens': text,
    'new-tokens': text,
    repetitions: text,
    'context-length': text,
  },
  'bench dispatch': { model: text },
  'bench ops': { repetitions: text },
};

/** → {name, adapter, model, out, json, parameters}; throws CommandError("invalid_usage") and, for files, CommandError("read"). */
export function parseCommand(argv) {
  const words = argv[0] === 'bench' && argv[1] !== undefined && !argv[1].startsWith('-') ? 2 : 1;
  const name = argv.slice(0, words).join(' ');
  const options = COMMANDS[name];
  if (options === undefined) throw invalid(name === '' ? 'no command given' : `there is no command "${name}"`);
  const values = parse(argv.slice(words), { ...options, adapter: text });
  const { adapter, model = name === 'bench' ? DEMO_MODEL : undefined, out } = values;
  if (adapter !== undefined && adapter !== 'swiftshader' && adapter !== 'gpu')
    throw invalid(`--adapter is swiftshader or gpu, got "${adapter}"`);
  if ('model' in options && name !== 'bench dispatch' && model === undefined) throw invalid(`${name} needs --model`);
  const { precision = name === 'logits' ? 'exact' : undefined } = values;
  if (precision !== undefined && precision !== 'fast' && precision !== 'exact')
    throw invalid(`--precision is fast or exact, got "${precision}"`);
  const { autotune } = values;
  if (autotune !== undefined && !AUTOTUNE.includes(autotune)) throw invalid(`--autotune is ${AUTOTUNE.join(', ')}, got "${autotune}"`);
  const { device } = values;
  if (device !== undefined && device !== 'gpu' && device !== 'cpu') throw invalid(`--device is gpu or cpu, got "${device}"`);
  const json = name !== 'bench' || values.json === true;
  const load = withoutUndefined({
    file: values.file,
    quantize: values.quantize,
    ...(name === 'generate' && { contextLength: number(values, 'context-length'), kvCache: values['kv-cache'] }),
    hub:
      values.hub === undefined && values.token === undefined ? undefined : withoutUndefined({ endpoint: values.hub, token: values.token }),
  });
  return {
    name,
    adapter,
    model,
    out,
    json,
    parameters: { ...parametersOf(name, values), load, ...(precision && { precision }), ...(autotune && { autotune }) },
  };
}

function parse(args, options) {
  try {
    return parseArgs({ args, options, strict: true, allowPositionals: false }).values;
  } catch (error) {
    throw invalid(error.message);
  }
}

function parametersOf(name, values) {
  const need = (option) => {
    if (values[option] === undefined) throw invalid(`${name} needs --${option}`);
    return values[option];
  };
  switch (name) {
    case 'generate': {
      if ((values.prompt === undefined) === (values.messages === undefined))
        throw invalid('generate needs --prompt or --messages, one of them');
      const settings = {
        max_tokens: number(values, 'max-tokens'),
        temperature: number(values, 'temperature'),
        top_k: number(values, 'top-k'),
        top_p: number(values, 'top-p'),
        min_p: number(values, 'min-p'),
        seed: number(values, 'seed'),
        ignore_eos: values['ignore-eos'],
        response_format: values['json-schema'] && {
          type: 'json_schema',
          json_schema: { name: 'answer', schema: readJson(values['json-schema']) },
        },
        tools: values.tools && readJson(values.tools),
        ...Object.fromEntries((values.set ?? []).map(field)),
      };
      if (values.raw && settings.tools !== undefined) throw invalid('--tools is for chats and does not go with --raw');
      if (values.raw && values.prompt === undefined) throw invalid('--raw goes with --prompt');
      const chat = values.messages === undefined ? undefined : readJson(values.messages);
      const { messages, ...more } = Array.isArray(chat) || chat === undefined ? { messages: chat } : chat;
      return { prompt: values.prompt, raw: values.raw ?? false, messages, settings: { ...more, ...withoutUndefined(settings) } };
    }
    case 'logits': {
      need('out');
      const ids = readJson(need('ids'));
      if (!Array.isArray(ids)) throw invalid('--ids names a JSON file with an array of token ids');
      return { ids };
    }
    case 'inspect':
      return { options: withoutUndefined({ contextLength: number(values, 'context-length') }) };
    case 'tokenize':
      return { text: need('text'), options: { add_special: values['add-special'] ?? false } };
    case 'embed':
      return { text: need('text'), settings: withoutUndefined({ dimensions: number(values, 'dimensions') }) };
    case 'rerank':
      return { query: need('query'), documents: need('document'), settings: withoutUndefined({ top_n: number(values, 'top-n') }) };
    case 'classify':
      return { text: need('text') };
    case 'template':
      return { template: readText(need('template')), context: readJson(need('context')) };
    default: {
      const settings = {
        promptTokens: number(values, 'prompt-tokens'),
        newTokens: number(values, 'new-tokens'),
        repetitions: number(values, 'repetitions'),
        contextLength: number(values, 'context-length'),
        seconds: number(values, 'seconds'),
      };
      const { device, training } = values;
      for (const [key, value] of Object.entries(settings)) {
        if (value !== undefined && !(Number.isInteger(value) && value > 0)) throw invalid(`${key} is a whole number from 1, got ${value}`);
      }
      return { settings: withoutUndefined({ ...settings, device, training }) };
    }
  }
}

/** `name=JSON` → [name, value]. */
function field(given) {
  const at = given.indexOf('=');
  if (at < 1) throw invalid(`--set is a field and its value as JSON, such as logprobs=true, got "${given}"`);
  try {
    return [given.slice(0, at), JSON.parse(given.slice(at + 1))];
  } catch (error) {
    throw invalid(`--set ${given.slice(0, at)}: the value is no JSON (${error.message}); a text stands in quotes, such as stop='"END"'`);
  }
}

function number(values, option) {
  const given = values[option];
  if (given === undefined) return undefined;
  const value = given.trim() === '' ? NaN : Number(given);
  if (!Number.isFinite(value)) throw invalid(`--${option} is a number, got "${given}"`);
  return value;
}

function withoutUndefined(object) {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined));
}

function readText(file) {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new CommandError('read', `${file} cannot be read: ${error.message}`);
  }
}

function readJson(file) {
  const content = readText(file);
  try {
    return JSON.parse(content);
  } catch (error) {
    throw new CommandError('read', `${file} is not JSON: ${error.message}`);
  }
}
