// Search by meaning: vectors of passages by an encoder, ranked by their dot product with that of the query.

import { Engine } from 'rillm';

const MODEL = new URLSearchParams(location.search).get('model') ?? 'hf:sentence-transformers/all-MiniLM-L6-v2';
const AT_ONCE = 16;

const element = (id) => document.getElementById(id);
const say = (text) => (element('status').textContent = text);
/** By passage, so that a text that was changed is not read anew as a whole. */
const vectors = new Map();
let engine;

const passagesOf = (text) => [...new Set(text.split(/\n\s*\n/).map((passage) => passage.trim()))].filter((passage) => passage !== '');

/** A vector of length 1 for each text. What is longer than the model takes is cut. */
async function embed(input) {
  engine ??= await Engine.load(MODEL, {
    onProgress: ({ loaded, total }) => say(`Loading the model: ${(loaded / 1e6).toFixed()} of ${(total / 1e6).toFixed()} MB`),
  });
  const { data } = await engine.embeddings.create({ input, truncate: true });
  return data.map(({ embedding }) => embedding);
}

/** The passages with their similarity to the query, from -1 to 1, the best first. */
async function search(text, query) {
  const passages = passagesOf(text);
  const unread = passages.filter((passage) => !vectors.has(passage));
  for (let at = 0; at < unread.length; at += AT_ONCE) {
    const some = unread.slice(at, at + AT_ONCE);
    for (const [i, vector] of (await embed(some)).entries()) vectors.set(some[i], vector);
    say(`Reading: ${Math.min(at + AT_ONCE, unread.length)} of ${unread.length} passages`);
  }
  const [wanted] = await embed([query]);
  const similarity = (vector) => vector.reduce((sum, x, i) => sum + x * wanted[i], 0);
  return passages.map((passage) => ({ passage, score: similarity(vectors.get(passage)) })).sort((a, b) => b.score - a.score);
}

function show(results) {
  const items = results.slice(0, 5).map(({ passage, score }) => {
    const item = document.createElement('li');
    item.append(Object.assign(document.createElement('small'), { textContent: `${score.toFixed(2)}  ` }), passage);
    return item;
  });
  element('results').replaceChildren(...items);
}

element('form').addEventListener('submit', async (event) => {
  event.preventDefault();
  element('find').disabled = true;
  element('alert').hidden = true;
  try {
    show(await search(element('text').value, element('query').value));
  } catch (error) {
    element('alert').textContent = error.message;
    element('alert').hidden = false;
  }
  say('');
  element('find').disabled = false;
});
