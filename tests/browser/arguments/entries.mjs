// The entries of the package, each called with what is no argument. `takes` names the values that are one (page.mjs); all others are refused with
// `code` (`invalid_request`) and a message that holds `names`. It runs in a page that has the package as `rillm`.

const ABSENT = ['undefined', 'null'];
const OBJECTS = ['an object', 'an object without a prototype'];
const OPTIONS = [...ABSENT, ...OBJECTS];
const TEXTS = ['an empty text', 'half of a pair'];
const prompt = { prompt: 'a', max_tokens: 1 };
const chat = { messages: [{ role: 'user', content: 'a' }], max_tokens: 1 };

/** Of an engine. */
export const OF_ENGINES = {
  'tokenize(…)': { call: (engine, value) => engine.tokenize(value), takes: TEXTS, names: 'text of tokenize' },
  "tokenize('a', …)": { call: (engine, value) => engine.tokenize('a', value), takes: OPTIONS, names: 'options of tokenize' },
  'tokenize: add_special': {
    call: (engine, value) => engine.tokenize('a', { add_special: value }),
    takes: ['undefined', 'true'],
    names: 'add_special',
  },
  'detokenize(…)': { call: (engine, value) => engine.detokenize(value), takes: ['an array'], names: 'token ids' },
  'detokenize([…])': { call: (engine, value) => engine.detokenize([value]), takes: ['5'], names: 'position 0' },
  'forward(…)': { call: (engine, value) => engine.forward(value), names: /token|number/ },
  'forward([1], …)': {
    call: (engine, value) => engine.forward([1], value),
    takes: ['undefined'],
    names: /options of forward|hiddenStates/,
  },
  'forward: hiddenStates': {
    call: (engine, value) => engine.forward([1], { hiddenStates: value }),
    takes: ['an array'],
    names: 'hiddenStates',
  },
  'embedTensor(…)': { call: (engine, value) => engine.embedTensor(value), names: /a request|messages|input|embed/ },
  'setSmoothness(…)': { call: (engine, value) => engine.setSmoothness(value), names: 'setSmoothness' },
  'setProfiling(…)': {
    call: (engine, value) => engine.setProfiling(value),
    takes: ['true'],
    names: 'setProfiling',
    code: /invalid_request|adapter_limits/,
  },
  'chat(…)': { call: (engine, value) => engine.chat.completions.create(value), names: /request|messages/ },
  'chat: messages': { call: (engine, value) => engine.chat.completions.create({ ...chat, messages: value }), names: 'messages' },
  'chat: content': {
    call: (engine, value) => engine.chat.completions.create({ ...chat, messages: [{ role: 'user', content: value }] }),
    takes: [...TEXTS, 'an array'],
    names: /content|messages/,
  },
  'chat: reasoning_effort': {
    call: (engine, value) => engine.chat.completions.create({ ...chat, reasoning_effort: value }),
    takes: ABSENT,
    names: 'reasoning_effort',
  },
  'chat: tools': {
    call: (engine, value) => engine.chat.completions.create({ ...chat, tools: value }),
    takes: [...ABSENT, 'an array'],
    names: 'tools',
  },
  'completions(…)': { call: (engine, value) => engine.completions.create(value), names: /request|prompt|messages/ },
  'completions: prompt': {
    call: (engine, value) => engine.completions.create({ ...prompt, prompt: value }),
    takes: ['half of a pair'],
    names: /prompt/,
  },
  'completions: max_tokens': {
    call: (engine, value) => engine.completions.create({ ...prompt, temperature: 0, max_tokens: value, stop: ['e', 'a', 'o', ' '] }),
    takes: [...ABSENT, '5'],
    names: 'max_tokens',
  },
  'completions: stream': {
    call: (engine, value) => engine.completions.create({ ...prompt, stream: value }),
    takes: [...ABSENT, 'true'],
    names: 'stream',
  },
  'completions: stream_options': {
    call: (engine, value) => engine.completions.create({ ...prompt, stream: true, stream_options: value }),
    takes: OPTIONS,
    names: 'stream_options',
  },
  'completions(…, options)': {
    call: (engine, value) => engine.completions.create(prompt, value),
    takes: OPTIONS,
    names: 'options of a request',
  },
  'completions: signal': {
    call: (engine, value) => engine.completions.create(prompt, { signal: value }),
    takes: ['undefined'],
    names: 'signal',
  },
  'completions: an unknown option': {
    call: (engine, value) => engine.completions.create(prompt, { sigal: value ?? 1 }),
    names: /sigal.*signal, logitsProcessor/,
  },
  'completions: logitsProcessor': {
    call: (engine, value) => engine.completions.create(prompt, { logitsProcessor: value }),
    takes: ['undefined', 'a function'],
    names: 'logitsProcessor',
  },
  'what a logits processor gives': {
    call: (engine, value) => engine.completions.create(prompt, { logitsProcessor: () => value }),
    takes: ['undefined'],
    names: 'logits processor',
    code: 'logits_processor',
  },
  'what a logits processor throws': {
    call: (engine, value) => engine.completions.create(prompt, { logitsProcessor: () => Promise.reject(value) }),
    names: 'logits processor',
    code: 'logits_processor',
  },
  'embeddings(…)': { call: (engine, value) => engine.embeddings.create(value), names: /request|messages|input|embed/ },
  'embeddings: encoding_format': {
    call: (engine, value) => engine.embeddings.create({ input: 'a', encoding_format: value }),
    names: /encoding_format|embed/,
  },
  'embeddings(…, options)': {
    call: (engine, value) => engine.embeddings.create({ input: 'a' }, value),
    names: /options of a request|embed/,
  },
  'rerank(…)': { call: (engine, value) => engine.rerank.create(value), names: /request|query|documents|rank|messages/ },
  'rerank: return_documents': {
    call: (engine, value) => engine.rerank.create({ query: 'a', documents: ['b'], return_documents: value }),
    names: /return_documents|rank/,
  },
  'rerank(…, options)': {
    call: (engine, value) => engine.rerank.create({ query: 'a', documents: ['b'] }, value),
    names: /options of a request|rank/,
  },
  'classify(…)': { call: (engine, value) => engine.classify.create(value), names: /request|input|label|messages/ },
  'classify(…, options)': {
    call: (engine, value) => engine.classify.create({ input: 'a' }, value),
    names: /options of a request|label/,
  },
  'responses(…)': { call: (engine, value) => engine.responses.create(value), names: /request|input|messages/ },
  'responses: input': {
    call: (engine, value) => engine.responses.create({ input: value, max_output_tokens: 1 }),
    takes: TEXTS,
    names: 'input',
  },
  'responses(…, options)': {
    call: (engine, value) => engine.responses.create({ input: 'a', max_output_tokens: 1 }, value),
    takes: OPTIONS,
    names: 'options of a request',
  },
  'responses.retrieve(…)': {
    call: (engine, value) => engine.responses.retrieve(value),
    names: 'response',
    code: /invalid_request|not_found/,
  },
  'responses.delete(…)': { call: (engine, value) => engine.responses.delete(value), names: 'response', code: /invalid_request|not_found/ },
  'responses.inputItems.list(…)': {
    call: (engine, value) => engine.responses.inputItems.list(value),
    names: 'response',
    code: /invalid_request|not_found/,
  },
  'sessions.save(…)': { call: (engine, value) => engine.sessions.save(value), names: /conversation|messages|toString/ },
  'sessions.save(…, options)': {
    call: (engine, value) => engine.sessions.save(chat.messages, value),
    takes: OPTIONS,
    names: 'options of saving',
  },
  'sessions.save: name': {
    call: (engine, value) => engine.sessions.save(chat.messages, { name: value }),
    takes: ['undefined'],
    names: /the name of a session|the option name/,
  },
  'sessions.restore(…)': { call: (engine, value) => engine.sessions.restore(value), names: 'session' },
  'sessions.restore(…, options)': {
    call: (engine, value) => engine.sessions.restore('nothing', value),
    names: /options of restoring|nothing/,
    code: /invalid_request|not_found/,
  },
  'sessions.delete(…)': { call: (engine, value) => engine.sessions.delete(value), names: 'the name of a session' },
  'train.checkpoints.delete(…)': { call: (engine, value) => engine.train.checkpoints.delete(value), names: 'the name of a checkpoint' },
  'createFetch(…)': { call: (engine, value) => engine.createFetch(value), isSync: true, takes: OPTIONS, names: 'options of createFetch' },
  'createFetch: fallback': {
    call: (engine, value) => engine.createFetch({ fallback: value }),
    isSync: true,
    takes: ['undefined'],
    names: 'fallback',
  },
  'createFetch: onFallback': {
    call: (engine, value) => engine.createFetch({ onFallback: value }),
    isSync: true,
    takes: ['undefined', 'a function'],
    names: 'onFallback',
  },
  'createFetch: baseURL': { call: (engine, value) => engine.createFetch({ fallback: { baseURL: value } }), isSync: true, names: 'baseURL' },
  'createFetch: headers': {
    call: (engine, value) => engine.createFetch({ fallback: { baseURL: 'http://a/v1', headers: value } }),
    isSync: true,
    takes: ['undefined', ...OBJECTS],
    names: 'headers',
  },
  'createFetch: when': {
    call: (engine, value) => engine.createFetch({ fallback: { baseURL: 'http://a/v1', when: value } }),
    isSync: true,
    takes: ['undefined', 'a function'],
    names: 'when',
  },
};

const MODEL = () => ({ size: 1, read: () => new Uint8Array(1) });

/** An option of a load. What passes the checks ends at the file, which is no model. */
const loaded = (name, takes = []) => [
  `load: ${name}`,
  { call: (_, value) => rillm.Engine.load(MODEL(), { worker: false, [name]: value }), passes: ['undefined', ...takes], names: name },
];

/** Without an engine. */
export const WITHOUT_ENGINE = {
  'load(…)': {
    call: (_, value) => rillm.Engine.load(value, { worker: false }),
    names: /model|blank/,
    code: /invalid_request|invalid_file|not_gguf|range_not_supported/,
  },
  'load(…, options)': {
    call: (_, value) => rillm.Engine.load(value === undefined || value === null ? [] : [new Blob(['a'])], value),
    names: /options of Engine.load|model|GGUF|file/,
    code: /invalid_request|invalid_file|not_gguf/,
  },
  ...Object.fromEntries([
    loaded('quantize'),
    loaded('contextLength', ['5']),
    loaded('maxSequences', ['5']),
    loaded('chatTemplate', TEXTS),
    loaded('classifierFromToken'),
    loaded('precision'),
    loaded('kvCache'),
    loaded('promptCacheBytes', ['5']),
    loaded('autotune'),
    loaded('smoothness'),
    loaded('powerPreference'),
    loaded('forceFallbackAdapter', ['true']),
    loaded('cache'),
    loaded('update'),
    loaded('integrity', ['null', ...OBJECTS]),
    loaded('connections', ['5']),
    loaded('persist', ['true']),
    loaded('onEvent', ['a function']),
    loaded('file', TEXTS),
    loaded('hub', ['null', ...OBJECTS]),
    loaded('onProgress', ['a function']),
    loaded('onWarning', ['a function']),
    loaded('onMemoryPressure', ['a function']),
    loaded('signal'),
    loaded('wasmUrl', TEXTS),
    loaded('wasmModule', TEXTS),
    loaded('grammarWasmUrl', TEXTS),
    loaded('grammarWasmModule', TEXTS),
    loaded('training', ['true']),
    loaded('trainingWasmUrl', TEXTS),
  ]),
  'load: draft': {
    call: (_, value) => rillm.Engine.load(MODEL(), { worker: false, draft: value }),
    passes: ['undefined', ...TEXTS, 'an array'],
    names: 'model',
  },
  'load: worker': {
    call: (_, value) => rillm.Engine.load(MODEL(), { worker: value ?? false }),
    passes: [...ABSENT, 'true'],
    names: 'worker',
  },
  'load: what worker gives': { call: (_, value) => rillm.Engine.load(MODEL(), { worker: () => value }), names: 'worker' },
  'load: an unknown option': {
    call: (_, value) => rillm.Engine.load(MODEL(), { contextLenght: value ?? 1 }),
    names: /contextLenght.*contextLength/,
  },
  'a source: size': {
    call: (_, value) => rillm.Engine.load({ ...MODEL(), size: value }, { worker: false }),
    passes: ['5'],
    names: /size|model/,
  },
  'a source: what read gives': {
    call: (_, value) => rillm.Engine.load({ size: 1, read: () => value }, { worker: false }),
    names: 'read()',
    code: /read|truncated/,
  },
  'a source: what read throws': {
    call: (_, value) => rillm.Engine.load({ size: 1, read: () => Promise.reject(value) }, { worker: false }),
    names: 'read()',
    code: 'read',
  },
  'a source, in a worker: what read throws': {
    call: (_, value) => rillm.Engine.load({ size: 1, read: () => Promise.reject(value) }),
    only: ['an object that throws as text', 'a revoked proxy', 'a symbol'],
    names: 'read()',
    code: 'read',
  },
  'shared(…, options)': {
    call: (_, value) => rillm.Engine.shared('/none', value ?? 5),
    not: ['an object', 'an object without a prototype'],
    names: 'options of Engine.shared',
  },
  'inspect(…, options)': {
    call: (_, value) => rillm.Engine.inspect([], value),
    names: /options of Engine.inspect|file/,
    code: /invalid_request|invalid_file/,
  },
  'recommend(…)': {
    call: (_, value) => rillm.Engine.recommend(value),
    only: ['undefined', 'null', '5', 'an object', 'a symbol', 'a revoked proxy', 'a proxy that throws'],
    names: 'array of models',
  },
  'recommend([], …)': { call: (_, value) => rillm.Engine.recommend([], value), takes: OPTIONS, names: 'options of Engine.recommend' },
  'recommend: memoryBytes': {
    call: (_, value) => rillm.Engine.recommend([], { memoryBytes: value }),
    takes: ['undefined', '5'],
    names: 'memoryBytes',
  },
  'models.list(…)': { call: (_, value) => rillm.models.list(value), takes: OPTIONS, names: 'options of models.list' },
  'models.list: cache': { call: (_, value) => rillm.models.list({ cache: value }), takes: ['undefined'], names: 'cache' },
  'models.info(…)': { call: (_, value) => rillm.models.info(value), takes: TEXTS, names: 'the name of a model' },
  'models.verify(…)': {
    call: (_, value) => rillm.models.verify(value),
    not: TEXTS,
    names: /the name of a model|no such model/,
    code: /invalid_request|not_found/,
  },
  'models.verify(…, options)': {
    call: (_, value) => rillm.models.verify('/none', value),
    names: /options of models.verify|no such model/,
    code: /invalid_request|not_found/,
  },
  'models.delete(…)': { call: (_, value) => rillm.models.delete(value), takes: TEXTS, names: 'the name of a model' },
  'models.usage(…)': { call: (_, value) => rillm.models.usage(value), takes: OPTIONS, names: 'options of models.usage' },
  'models.prune(…)': { call: (_, value) => rillm.models.prune(value), names: /options of models.prune|keepBytes/ },
  'models.prune: keepBytes': { call: (_, value) => rillm.models.prune({ keepBytes: value }), takes: ['5'], names: 'keepBytes' },
  'models.export(…)': { call: (_, value) => rillm.models.export(value, {}), names: 'folder' },
  'models.export(…, folder)': { call: (_, value) => rillm.models.export('/none', value), names: 'folder' },
  'models.import(…)': {
    call: (_, value) => rillm.models.import(value),
    names: /models.import|wanted/,
    code: /invalid_request|invalid_file/,
  },
  'models.import: name': {
    call: (_, value) => rillm.models.import([], { name: value }),
    names: /name|rillm-model/,
    code: /invalid_request|invalid_file/,
  },
  'models.download(…)': {
    call: (_, value) => rillm.models.download(value, { worker: false, cache: 'none' }),
    names: /model/,
  },
  'renderTemplate(…)': { call: (_, value) => rillm.renderTemplate(value, {}), takes: TEXTS, names: 'template' },
  "renderTemplate('', …)": {
    call: (_, value) => rillm.renderTemplate('', value),
    takes: ['an object', 'a frozen object', 'an object without a prototype', 'a huge length'],
    names: /the context of a template|messages|input|prompt|toString/,
  },
  'renderTemplate: a variable': {
    call: (_, value) => rillm.renderTemplate('{{ a }}', { a: value }),
    takes: [
      ...ABSENT,
      ...TEXTS,
      '5',
      '-1',
      'true',
      'an object',
      'an array',
      'a frozen object',
      'an object without a prototype',
      'a huge length',
    ],
    names: 'a',
  },
  'renderTemplate(…, options)': {
    call: (_, value) => rillm.renderTemplate('', {}, value),
    takes: OPTIONS,
    names: 'options of renderTemplate',
  },
  'serveModels(…)': { call: (_, value) => rillm.serveModels(value), isSync: true, takes: ['a cycle'], names: /model/ },
  'serveModels({a: …})': {
    call: (_, value) => rillm.serveModels({ a: value }),
    isSync: true,
    only: [...ABSENT, '5', 'a symbol', 'a bigint', 'a function', 'getters that throw', 'a proxy that throws', 'a revoked proxy'],
    names: '"a"',
  },
  'serveModels(…, options)': {
    call: (_, value) => rillm.serveModels({ a: '/none' }, value),
    isSync: true,
    takes: OPTIONS,
    names: 'options of serveModels',
  },
  'serveModels: budgetBytes': {
    call: (_, value) => rillm.serveModels({ a: '/none' }, { budgetBytes: value }),
    isSync: true,
    takes: ['undefined', '5', 'Infinity'],
    names: 'budgetBytes',
  },
};

const KERNEL = {
  wgsl: '@group(0) @binding(0) var<storage, read_write> x: array<f32>;\n@compute @workgroup_size(WORKGROUP_X) fn main() { x[0] *= 2; }',
  bindings: ['read_write'],
};
const requested = (name, takes = []) => [
  `Device.request: ${name}`,
  {
    call: (_, value) => rillm.Device.request({ [name]: value }).then((device) => device.destroy()),
    takes: ['undefined', ...takes],
    // One of the limits or features is named.
    names: name.replace(/s$/, ''),
  },
];
const dispatched = (name) => [
  `dispatch: ${name}`,
  {
    call: async ({ kernel, tensor }, value) => {
      const size = name === 'threads' ? {} : { grid: [1] };
      kernel.dispatch({ bindings: [tensor], ...size, [name]: value });
    },
    names: /dispatch|bindings|grid|threads|kernel/,
  },
];

/** Of `rillm/tensor`. */
export const OF_TENSORS = {
  'Device.request(…)': {
    call: (_, value) => rillm.Device.request(value).then((device) => device.destroy()),
    takes: OPTIONS,
    names: 'options of Device.request',
  },
  ...Object.fromEntries([
    requested('powerPreference'),
    requested('forceFallbackAdapter', ['true']),
    requested('features', ['an array']),
    requested('limits', OBJECTS),
    requested('debug', ['true']),
    requested('caches', ['null', ...OBJECTS]),
    requested('maxBatchSize', ['5']),
    dispatched('bindings'),
    dispatched('grid'),
    dispatched('threads'),
  ]),
  'Device.request: device': { call: (_, value) => rillm.Device.request({ device: value ?? 5 }), names: 'GPUDevice' },
  'Device.request: an unknown option': { call: (_, value) => rillm.Device.request({ limit: value ?? 1 }), names: /limit.*limits/ },
  'kernel(…)': { call: ({ device }, value) => device.kernel(value), names: 'kernel' },
  'kernel: label': {
    call: ({ device }, value) => device.kernel({ ...KERNEL, label: value }),
    takes: ['undefined', ...TEXTS],
    names: 'label',
  },
  'kernel: wgsl': {
    call: ({ device }, value) => device.kernel({ ...KERNEL, wgsl: value }),
    names: /wgsl|kernel|line/,
    code: /invalid_request|shader_compilation/,
  },
  'kernel: bindings': {
    call: ({ device }, value) => device.kernel({ ...KERNEL, bindings: value }),
    names: /binding/,
    code: /invalid_request|shader_compilation/,
  },
  'kernel: workgroup': {
    call: ({ device }, value) => device.kernel({ ...KERNEL, workgroup: value }),
    takes: ['undefined'],
    names: 'workgroup',
  },
  'dispatch(…)': { call: async ({ kernel }, value) => kernel.dispatch(value), names: /kernel/ },
  'execute(…)': {
    call: async ({ device }, value) => {
      const batch = device.batch();
      batch.relu(batch.upload([1]));
      try {
        await batch.execute(value);
      } finally {
        batch.dispose();
      }
    },
    takes: OPTIONS,
    names: 'execute',
  },
  'rand: seed': {
    call: async ({ device }, value) => device.rand([2], { seed: value }).dispose(),
    takes: ['undefined', '5'],
    names: 'seed',
  },
};

/** A device with what the entries above want. */
export async function tensorStage() {
  const device = await rillm.Device.request();
  return { device, kernel: await device.kernel(KERNEL), tensor: device.tensor([1, 2, 3, 4], [2, 2]) };
}

/** Every method of a device, a tensor and a batch, and every function, each with the value in several places: name → call. */
export function everyMethod({ device, tensor }) {
  const calls = {};
  // What is called below by itself, or ends what the others need.
  const skipped = ['constructor', 'dispose', 'destroy', 'made', 'madeAll', 'idOf', 'idOrNone', 'noted', 'request'];
  const methodsOf = (object) => {
    const names = new Set();
    for (let of = object; of !== Object.prototype; of = Object.getPrototypeOf(of)) {
      for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors(of)))
        if (typeof value === 'function') names.add(name);
    }
    return [...names].filter((name) => !skipped.includes(name));
  };
  for (const name of methodsOf(tensor)) {
    calls[`tensor.${name}(…)`] = (value) => tensor[name](value);
    calls[`tensor.${name}(tensor, …)`] = (value) => tensor[name](tensor, value);
  }
  for (const name of methodsOf(device)) {
    calls[`device.${name}(…)`] = (value) => device[name](value);
    calls[`device.${name}([2], …)`] = (value) => device[name]([2], value);
  }
  const batch = device.batch();
  const x = batch.upload([1, 2, 3, 4], [2, 2]);
  for (const name of methodsOf(batch)) {
    calls[`batch.${name}(…)`] = (value) => batch[name](value);
    calls[`batch.${name}(x, …)`] = (value) => batch[name](x, value);
  }
  for (const [name, called] of Object.entries(rillm)) if (/^[a-z]/.test(name)) calls[`${name}(…)`] = (value) => called(value);
  return calls;
}
