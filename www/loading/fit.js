// Whether a model fits this device. The adapter's limits are facts; how much memory a GPU has, WebGPU does not tell, so the rest is a guess by
// what the browser says of the machine. Pure functions.

const GIB = 2 ** 30;
/** The most that browsers used to admit; newer ones say more. */
const REPORTED_AT_MOST = 8;
/** Tokens of the context that a load makes by default. */
const DEFAULT_CONTEXT = 4096;
/** Of a larger model a CPU says so few tokens a second that it is no chat any more. */
const MOST_ON_CPU = 400e6;
/** A single tensor that has to be bound whole is at most about this part of a model. */
const LARGEST_TENSOR = 0.2;

export function sizeText(bytes) {
  if (bytes >= 1e9) return `${(bytes / 1e9).toFixed(2)} GB`;
  return bytes >= 1e6 ? `${(bytes / 1e6).toFixed(1)} MB` : `${Math.ceil(bytes / 1e3)} kB`;
}

/**
 * What WebGPU and the browser tell: {max_buffer_bytes, is_on_cpu, memory_gib}. Without a GPU models run on the CPU, where weights have 60 GiB at most, and
 * 4 GiB where there may be no threads.
 */
export async function deviceOf({ gpu, deviceMemory } = navigator, mayShare = globalThis.crossOriginIsolated === true) {
  const adapter = await gpu?.requestAdapter({ powerPreference: 'high-performance' }).catch(() => null);
  const isOnCpu = !adapter || isSoftware(adapter);
  return {
    max_buffer_bytes: isOnCpu ? (mayShare ? 60 : 4) * GIB : adapter.limits.maxBufferSize,
    is_on_cpu: isOnCpu,
    memory_gib: deviceMemory,
  };
}

/** As the package sees it, which then takes the CPU. */
function isSoftware(adapter) {
  return (adapter.info?.isFallbackAdapter ?? adapter.isFallbackAdapter ?? false) || adapter.info?.architecture === 'swiftshader';
}

/** What a token takes in the KV cache, of what it takes in f16. */
const CACHE_PARTS = { f32: 2, f16: 1, q8_0: 34 / 64 };

/** Bytes on the GPU of a model that is known by its figures alone, as a load with these options makes it. */
export function neededBytes({ bytes, kv, context }, { contextLength = DEFAULT_CONTEXT, kvCache = 'f16' } = {}) {
  return bytes + kv * (CACHE_PARTS[kvCache] ?? 1) * Math.min(context, contextLength);
}

/**
 * {verdict: 'fits' | 'tight' | 'slow' | 'too large' | 'unknown', words}. `needed` is bytes of weights and KV cache; `problem` is what `Engine.inspect` has found, whose word
 * is the last.
 */
export function fitOf({ needed, problem }, device) {
  if (problem !== undefined) {
    const isSize = problem.code === 'adapter_limits' || problem.code === 'out_of_memory';
    return { verdict: isSize ? 'too large' : 'unknown', words: problem.message };
  }
  if (device === undefined || !(needed > 0)) return { verdict: 'unknown', words: 'Nothing is known of this device’s GPU.' };
  const { max_buffer_bytes, is_on_cpu, memory_gib } = device;
  const size = `It needs ${sizeText(needed)}${is_on_cpu ? '' : ' of the GPU'}`;
  if (is_on_cpu && needed > max_buffer_bytes)
    return { verdict: 'too large', words: `${size}, and a model on the CPU has ${sizeText(max_buffer_bytes)} at most.` };
  if (needed * LARGEST_TENSOR > max_buffer_bytes)
    return { verdict: 'too large', words: `${size}, whose largest buffer has ${sizeText(max_buffer_bytes)}.` };
  const all = (memory_gib ?? Infinity) * GIB;
  const isExact = memory_gib < REPORTED_AT_MOST;
  if (isExact && needed > all) return { verdict: 'too large', words: `${size}, and this device has ${memory_gib} GB of memory in all.` };
  if (is_on_cpu && needed > MOST_ON_CPU) return { verdict: 'slow', words: `${size}, and the CPU runs it here: answers will be slow.` };
  if (memory_gib !== undefined) {
    if (needed > all / 2)
      return { verdict: 'tight', words: `${size}; the browser tells of ${memory_gib} GB of memory${isExact ? '' : ' or more'}.` };
  } else if (needed > max_buffer_bytes) {
    return {
      verdict: 'tight',
      words: `${size}, more than its largest buffer (${sizeText(max_buffer_bytes)}); how much memory it has, the browser does not tell.`,
    };
  }
  return { verdict: 'fits', words: `${size}.` };
}

/** The same from what `Engine.inspect` gives. */
export function fitOfInspection({ weight_bytes = 0, kv_cache_bytes = 0, problem, adapter }, device) {
  const own = adapter === undefined || device?.is_on_cpu ? device : { ...device, max_buffer_bytes: adapter.max_buffer_bytes };
  return fitOf({ needed: weight_bytes + kv_cache_bytes, problem }, own);
}

/** What `Engine.recommend` says of a model on the CPU is measured: {verdict, words}. */
export function fitOfRecommendation({ fits, tokens_per_s, reason, problem }, minTokensPerSecond) {
  if (problem !== undefined) return fitOf({ problem });
  const isFast = (tokens_per_s ?? Infinity) >= minTokensPerSecond;
  return { verdict: !fits ? 'too large' : isFast ? 'fits' : 'slow', words: `${reason[0].toUpperCase()}${reason.slice(1)}.` };
}

/** What is wrong with the text of a context's length, in words; undefined if nothing is. */
export function faultOfContext(text = '') {
  const length = Number(text);
  return text === '' || (Number.isInteger(length) && length > 0)
    ? undefined
    : 'The context has to be a whole number of tokens, at least 1.';
}
