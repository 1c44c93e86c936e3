// A small live plot: a line of the last values with the newest one in figures. Screen readers get the figures.

import { html, svg } from 'lit-html';

const WIDTH = 120;
const HEIGHT = 32;
/** Values of a line. */
export const MOST_POINTS = 60;

/** Adds a value, and drops the oldest when there are too many. */
export function push(series, value) {
  if (!Number.isFinite(value)) return;
  series.push(value);
  if (series.length > MOST_POINTS) series.shift();
}

/** `text` is the newest value in words. */
export function plot({ label, text, series: given, id }) {
  // One value is a level line.
  const series = given.length === 1 ? [given[0], given[0]] : given;
  const most = Math.max(...series, 0);
  const points = series.map((value, i) => {
    const x = (i / (series.length - 1)) * WIDTH;
    const y = HEIGHT - 2 - (most > 0 ? (value / most) * (HEIGHT - 6) : 0);
    return [x.toFixed(1), y.toFixed(1)];
  });
  const line = points.map((point) => point.join()).join(' ');
  return html`<div class="live-plot">
    <span class="label">${label}</span>
    <output id=${id}>${text}</output>
    <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" aria-hidden="true">
      ${points.length > 1 ? svg`<polygon class="area" points="0,${HEIGHT} ${line} ${WIDTH},${HEIGHT}" /><polyline class="line" points=${line} />` : ''}
    </svg>
  </div>`;
}
