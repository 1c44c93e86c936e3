// Bar charts in SVG. The figures stand in the tables of the page too, so a chart is one image with a name for a screen reader.

const SVG = 'http://www.w3.org/2000/svg';
const ROW = 38;
const TEXT_LINE = 14;
const BAR = { top: 20, height: 9 };

function element(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

/**
 * A figure with a bar for each row {name, value, text}. The bars are parts of `most`, or of the largest value. Lengths are
 * percentages, so that it fits every width while the letters keep their size.
 */
export function barChart({ title, remark, rows, most = Math.max(...rows.map(({ value }) => value)) }) {
  const svg = element('svg', {
    role: 'img',
    height: rows.length * ROW - (ROW - BAR.top - BAR.height),
    'aria-label': `${title}: ${rows.map(({ name, text }) => `${name} ${text}`).join('; ')}`,
  });
  rows.forEach(({ name, value, text }, i) => {
    const y = i * ROW;
    const part = most > 0 ? Math.min(1, Math.max(0, value / most)) : 0;
    svg.append(
      element('text', { x: 0, y: y + TEXT_LINE }, name),
      element('text', { x: '100%', y: y + TEXT_LINE, class: 'value' }, text),
      element('rect', { x: 0, y: y + BAR.top, width: '100%', height: BAR.height, rx: BAR.height / 2, class: 'track' }),
      element('rect', { x: 0, y: y + BAR.top, width: `${(part * 100).toFixed(2)}%`, height: BAR.height, rx: BAR.height / 2, class: 'bar' }),
    );
  });
  const figure = document.createElement('figure');
  figure.className = 'plot';
  const caption = document.createElement('figcaption');
  caption.textContent = title;
  if (remark !== undefined) {
    const small = document.createElement('small');
    small.textContent = remark;
    caption.append(small);
  }
  figure.append(caption, svg);
  return figure;
}
