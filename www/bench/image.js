// A report as a picture to share: the main figures, on what they were measured, and when. Drawn on a canvas, so that nothing of the page has to be copied.

import { adapterName } from './report.js';
import { headlinesOf } from './view.js';

const WIDTH = 1200;
const HEIGHT = 630;
const MARGIN = 64;
const COLUMNS = 3;
const COLOURS = { page: '#f6f5f2', surface: '#ffffff', ink: '#1d2021', faint: '#5b6366', line: '#dcdad4', accent: '#0b7a71' };
const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

/** What was measured on what, in a line or two. */
function placeOf({ model, adapter, browser, date }) {
  return [
    `${model.name ?? model.architecture} · ${(model.parameters / 1e6).toFixed(0)} M parameters · ${model.quantization} · context ${model.context_length}`,
    `${adapterName(adapter)}${adapter.is_fallback ? ' (software)' : ''} · ${browserName(browser)} · ${date.slice(0, 10)}`,
  ];
}

const browserName = (userAgent) =>
  userAgent
    .match(/(?:Firefox|Edg|Chrome|Version)\/[\d]+/)?.[0]
    .replace('Edg/', 'Edge ')
    .replace('Version/', 'Safari ')
    .replace('/', ' ') ?? 'unknown browser';

/** A report in a few lines of text. */
export function summaryOf(report) {
  return [...placeOf(report), ...headlinesOf(report).map(([value, unit, words]) => `${value} ${unit} ${words}`)].join('\n');
}

/** A Blob with a PNG. */
export async function imageOf(report) {
  const canvas = new OffscreenCanvas(WIDTH, HEIGHT);
  const context = canvas.getContext('2d');
  const text = (words, x, y, font, colour, most) => {
    context.font = `${font} ${FONT}`;
    context.fillStyle = colour;
    context.fillText(words, x, y, most);
  };
  context.fillStyle = COLOURS.page;
  context.fillRect(0, 0, WIDTH, HEIGHT);
  text('rillm benchmark', MARGIN, 104, '700 48px', COLOURS.ink);
  for (const [i, line] of placeOf(report).entries()) text(line, MARGIN, 152 + i * 36, '400 26px', COLOURS.faint, WIDTH - 2 * MARGIN);

  const gap = 20;
  const width = (WIDTH - 2 * MARGIN - gap * (COLUMNS - 1)) / COLUMNS;
  const height = 166;
  headlinesOf(report).forEach(([value, unit, words], i) => {
    const x = MARGIN + (i % COLUMNS) * (width + gap);
    const y = 224 + Math.floor(i / COLUMNS) * (height + gap);
    context.fillStyle = COLOURS.surface;
    context.strokeStyle = COLOURS.line;
    context.beginPath();
    context.roundRect(x, y, width, height, 16);
    context.fill();
    context.stroke();
    text(value, x + 24, y + 76, '650 54px', COLOURS.accent);
    const wide = context.measureText(value).width;
    text(unit, x + 24 + wide + 10, y + 76, '500 26px', COLOURS.ink);
    text(words, x + 24, y + 124, '400 22px', COLOURS.faint, width - 48);
  });
  return canvas.convertToBlob({ type: 'image/png' });
}
