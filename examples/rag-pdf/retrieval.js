// Which passages fit a question: those whose vectors are nearest to the question's.

const AT_ONCE = 16;

/** Gives each passage its vector. `onPart` hears how far it is. */
export async function embedAll(encoder, passages, onPart, signal) {
  for (let at = 0; at < passages.length; at += AT_ONCE) {
    onPart(at, passages.length);
    const some = passages.slice(at, at + AT_ONCE);
    const vectors = await embed(
      encoder,
      some.map(({ text }) => text),
      signal,
    );
    for (const [i, passage] of some.entries()) passage.vector = vectors[i];
  }
}

/** The `count` best passages for a question, the best first. */
export async function nearest(encoder, passages, question, count, signal) {
  const [wanted] = await embed(encoder, [question], signal);
  const similarity = ({ vector }) => vector.reduce((sum, x, i) => sum + x * wanted[i], 0);
  const scored = passages.map((passage) => ({ ...passage, score: similarity(passage) }));
  return scored.sort((a, b) => b.score - a.score).slice(0, count);
}

async function embed(encoder, input, signal) {
  const { data } = await encoder.embeddings.create({ input, truncate: true }, { signal });
  return data.map(({ embedding }) => embedding);
}
