// Texts in groups: vectors by an encoder (rillm), k-means by tensors (rillm/tensor). index.html says how to run it.

import { Engine } from 'rillm';
import { Device } from 'rillm/tensor';

const MODEL = new URLSearchParams(location.search).get('model') ?? 'hf:sentence-transformers/all-MiniLM-L6-v2';

/**
 * Groups the rows of x [n, d], which have length 1, around k centres (k-means). It begins several times with other centres and takes the closest
 * groups. Resolves to the group of each row, the sum of their distances from the centres (less a constant), and the number of rounds.
 * The same seed begins with the same centres.
 */
export async function kMeans(x, k, { seed = 1, starts = 8 } = {}) {
  let best;
  for (let start = 0; start < starts; start++) {
    const found = await oneStart(x, k, seed + start);
    // Scattered sums are added up in any order, so their last digits differ from run to run: what is closer by those alone is not closer.
    if (best === undefined || found.spread < best.spread - 1e-4 * Math.abs(best.spread)) best = found;
  }
  return best;
}

/** Lloyd's algorithm from one start. `tidy` disposes of every tensor that is made here. */
function oneStart(x, k, seed, mostRounds = 50) {
  const { device } = x;
  return device.tidy(async () => {
    let centres = firstCentres(x, k, seed); // [k, d]
    let groups = device.full([x.shape[0]], -1, 'i32'); // [n]
    for (let rounds = 1; ; rounds++) {
      const far = distances(x, centres); // [n, k]
      const nearest = far.argmin(1); // [n]
      // Two numbers come back in a round, with one wait.
      const [[moved], [spread]] = await device.readback(nearest.notEqual(groups).any(), far.min(1).sum());
      groups = nearest;
      if (!moved || rounds === mostRounds) return { groups: [...(await groups.readback())], spread, rounds };
      centres = means(x, groups, centres);
    }
  });
}

/**
 * Squared distances of rows and centres [n, k], less the squared length of each row, which is the same for all centres. One kernel computes the
 * product and what follows it.
 */
function distances(x, centres) {
  const lengths = centres.mul(centres).sum(1); // [k]
  return x.matmul(centres.transpose()).mul(-2).add(lengths);
}

/** Rows far from each other: one at random, then always the row that is farthest from those before it. Rows have length 1. */
function firstCentres(x, k, seed) {
  const { device } = x;
  let rows = device.rand([x.shape[0]], { seed }).argmax(0, { keepDim: true }); // [1]
  while (rows.size < k) {
    const nearest = distances(x, x.indexSelect(0, rows)).min(1); // [n]
    rows = device.cat([rows, nearest.argmax(0, { keepDim: true })]);
  }
  return x.indexSelect(0, rows);
}

/** The mean of the rows of each group [k, d]. A group without rows keeps its centre. */
function means(x, groups, centres) {
  const { device } = x;
  const [[n, d], [k]] = [x.shape, centres.shape];
  const sums = device.zeros([k, d]).scatterAdd(0, groups.unsqueeze(1).expand([n, d]), x);
  const counts = device
    .zeros([k])
    .scatterAdd(0, groups, device.ones([n]))
    .unsqueeze(1); // [k, 1]
  return counts.greater(0).where(sums.div(counts), centres);
}

// The page.

const element = (id) => document.getElementById(id);
const say = (text) => (element('status').textContent = text);
let device;
let engine;

function complain(error) {
  say('');
  element('alert').textContent = error.message;
  element('alert').hidden = false;
}

/** A vector of length 1 for each text, as a tensor [texts, d]. */
async function embed(texts) {
  engine ??= await Engine.load(MODEL, {
    onProgress: ({ loaded, total }) => say(`Loading the model: ${(loaded / 1e6).toFixed()} of ${(total / 1e6).toFixed()} MB`),
  });
  say('Reading the texts …');
  const { data } = await engine.embeddings.create({ input: texts });
  const vectors = data.flatMap(({ embedding }) => embedding);
  return device.tensor(vectors, [texts.length, vectors.length / texts.length]);
}

function show(texts, groups) {
  // In the order in which the groups first appear.
  const sections = [...new Set(groups)].map((group, at) => {
    const [section, title, list] = ['section', 'h2', 'ul'].map((name) => document.createElement(name));
    title.textContent = `Group ${at + 1}`;
    for (const text of texts.filter((_, row) => groups[row] === group)) {
      list.append(Object.assign(document.createElement('li'), { textContent: text }));
    }
    section.className = 'card';
    section.append(title, list);
    return section;
  });
  element('groups').replaceChildren(...sections);
}

async function run() {
  const texts = element('texts')
    .value.split('\n')
    .map((text) => text.trim())
    .filter((text) => text !== '');
  const k = element('count').valueAsNumber;
  if (texts.length < k) throw new Error(`${k} groups need at least ${k} texts; there are ${texts.length}.`);
  const x = await embed(texts);
  try {
    say('Grouping …');
    const { groups, rounds } = await kMeans(x, k);
    show(texts, groups);
    say(`${texts.length} texts, ${new Set(groups).size} groups, ${rounds} rounds`);
  } finally {
    x.dispose();
  }
}

element('form').addEventListener('submit', async (event) => {
  event.preventDefault();
  element('alert').hidden = true;
  element('run').disabled = true;
  await run().catch(complain);
  element('run').disabled = false;
});

// The page is left for good: free the GPU at once.
addEventListener('pagehide', ({ persisted }) => {
  if (persisted) return;
  engine?.dispose();
  device?.destroy();
});

try {
  device = await Device.request();
  element('run').disabled = false;
} catch (error) {
  complain(error);
}
