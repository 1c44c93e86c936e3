// Searches the Hugging Face hub for models in GGUF, or in safetensors. Source: the hub's API (https://huggingface.co/docs/hub/api).

const HUB = 'https://huggingface.co';
const MOST = 20;
const SEARCH_MS = 15_000;

const FORMATS = {
  gguf: { filter: 'gguf' },
  // There is much else in safetensors: images, voices.
  safetensors: { filter: 'safetensors', pipeline_tag: 'text-generation' },
};

/** [{source, name, downloads}] of a format, those that are downloaded most first. Rejects where the hub can't be reached. */
export async function searchHub(words, format, signal) {
  const query = new URLSearchParams({ search: words, ...FORMATS[format], sort: 'downloads', direction: '-1', limit: String(MOST) });
  const response = await fetch(`${HUB}/api/models?${query}`, {
    credentials: 'omit',
    signal: AbortSignal.any([signal, AbortSignal.timeout(SEARCH_MS)]),
  });
  if (!response.ok) throw new Error(`the hub answered with status ${response.status}`);
  const found = await response.json();
  if (!Array.isArray(found)) throw new Error('the hub answered with something else than a list');
  return found
    .filter(({ id }) => typeof id === 'string' && /^[\w.-]+\/[\w.-]+$/.test(id))
    .map(({ id, downloads }) => ({ source: `hf:${id}`, name: id, downloads: Number(downloads) || 0 }));
}

/** Those of a list whose name or source has all of the words. */
export function searchIn(list, words) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  return list.filter(({ name, source }) => wanted.every((word) => `${name} ${source}`.toLowerCase().includes(word)));
}

/** Whether a text is an address of a model and not words to search for. */
export function isAddress(text) {
  return /^(hf:|opfs:|https?:\/\/|\.{0,2}\/)/i.test(text) || /\.(gguf|safetensors)$/i.test(text);
}
