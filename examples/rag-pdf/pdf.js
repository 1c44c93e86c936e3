// Passages of a PDF, with the pages they stand on.

import { getDocument, GlobalWorkerOptions } from 'pdfjs-dist';

const PDFJS = '/node_modules/pdfjs-dist';
GlobalWorkerOptions.workerSrc = `${PDFJS}/build/pdf.worker.min.mjs`;

/** Characters of a passage: short enough for the encoder, and for several in a prompt. */
const LENGTH = 600;

/** Cuts a text into passages that end with a sentence, where that can be. */
export function cut(text, length = LENGTH) {
  const sentences = Array.from(new Intl.Segmenter(undefined, { granularity: 'sentence' }).segment(text), ({ segment }) => segment);
  const passages = [''];
  for (const sentence of sentences.flatMap((whole) => whole.match(new RegExp(`.{1,${length}}`, 'gsu')) ?? [])) {
    if (passages.at(-1).length + sentence.length > length) passages.push('');
    passages[passages.length - 1] += sentence;
  }
  return passages.map((passage) => passage.trim()).filter((passage) => passage !== '');
}

/** `[{page, text}]` of a File. `onPage` hears how far it is. */
export async function passagesOf(file, onPage, signal) {
  const loading = getDocument({
    data: await file.arrayBuffer(),
    cMapUrl: `${PDFJS}/cmaps/`,
    standardFontDataUrl: `${PDFJS}/standard_fonts/`,
  });
  try {
    const pdf = await loading.promise;
    const passages = [];
    for (let page = 1; page <= pdf.numPages; page++) {
      signal.throwIfAborted();
      onPage(page, pdf.numPages);
      const { items } = await (await pdf.getPage(page)).getTextContent();
      const text = items.map(({ str, hasEOL }) => str + (hasEOL ? ' ' : '')).join('');
      passages.push(...cut(text.replace(/\s+/g, ' ')).map((text) => ({ page, text })));
    }
    if (passages.length === 0) throw new Error('There is no text in this PDF: its pages may be pictures.');
    return passages;
  } finally {
    await loading.destroy();
  }
}
