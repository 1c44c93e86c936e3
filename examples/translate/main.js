// A translator: each sentence is a completion of an encoder-decoder, shown as it is written. T5, NLLB and Marian are told the languages differently.

import { Engine } from 'rillm';

const MODEL = new URLSearchParams(location.search).get('model') ?? 'hf:google/flan-t5-base';
/** By name, with NLLB's codes (FLORES-200). */
const LANGUAGES = {
  English: 'eng_Latn',
  German: 'deu_Latn',
  French: 'fra_Latn',
  Spanish: 'spa_Latn',
  Italian: 'ita_Latn',
  Portuguese: 'por_Latn',
  Romanian: 'ron_Latn',
};
/** The request for a sentence, by the architecture of the model. */
const REQUESTS = {
  t5: (sentence, from, to) => ({ prompt: `translate ${from} to ${to}: ${sentence}` }),
  m2m_100: (prompt, from, to) => ({ prompt, src_lang: LANGUAGES[from], forced_bos_token_id: LANGUAGES[to] }),
  // The model has its languages. One for several is told by the text: `>>deu<< The house is small.`
  marian: (prompt) => ({ prompt }),
};

const element = (id) => document.getElementById(id);
const say = (text) => (element('status').textContent = text);
let engine;
let abort;

/** Lines of sentences. These models were trained on single ones. */
function sentencesOf(text) {
  const segmenter = new Intl.Segmenter('en', { granularity: 'sentence' });
  const sentences = (line) => Array.from(segmenter.segment(line), ({ segment }) => segment.trim()).filter((sentence) => sentence !== '');
  return text.trim().split('\n').map(sentences);
}

/** The translation in pieces, as they are written. */
async function* translate(text, from, to, { signal }) {
  engine ??= await Engine.load(MODEL, {
    signal,
    onProgress: ({ loaded, total }) => say(`Loading the model: ${(loaded / 1e6).toFixed()} of ${(total / 1e6).toFixed()} MB`),
  });
  const request = REQUESTS[engine.info.architecture];
  if (!request)
    throw new Error(`This page translates by T5, NLLB and Marian; the model is of the architecture ${engine.info.architecture}.`);
  say('Translating …');
  for (const [line, sentences] of sentencesOf(text).entries()) {
    if (line > 0) yield '\n';
    for (const [at, sentence] of sentences.entries()) {
      if (at > 0) yield ' ';
      const chunks = await engine.completions.create({ ...request(sentence, from, to), temperature: 0, stream: true }, { signal });
      for await (const { choices } of chunks) yield choices[0]?.text ?? '';
    }
  }
}

for (const [id, chosen] of [
  ['from', 'English'],
  ['to', 'German'],
]) {
  element(id).append(...Object.keys(LANGUAGES).map((name) => new Option(name, name, name === chosen, name === chosen)));
}

element('form').addEventListener('submit', async (event) => {
  event.preventDefault();
  element('alert').hidden = true;
  element('translate').disabled = true;
  element('stop').hidden = false;
  element('translation').textContent = '';
  abort = new AbortController();
  try {
    for await (const piece of translate(element('text').value, element('from').value, element('to').value, abort)) {
      element('translation').append(piece);
    }
  } catch (error) {
    element('alert').textContent = error.message;
    element('alert').hidden = error.code === 'aborted';
  }
  say('');
  element('translate').disabled = false;
  element('stop').hidden = true;
});
element('stop').addEventListener('click', () => abort.abort());
