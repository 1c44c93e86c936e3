// The icons of buttons, drawn in the colour of the text. A button's name stands beside its icon or in its aria-label.

import { svg } from 'lit-html';

const icon = (...paths) =>
  svg`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true">${paths.map((path) => svg`<path d=${path} />`)}</svg>`;

export const ICONS = {
  menu: icon('M4 6h16M4 12h16M4 18h16'),
  panel: icon('M4 7h10M18 7h2M4 17h2M10 17h10M14 4v6M6 14v6'),
  send: icon('M12 19V5M5 12l7-7 7 7'),
  stop: icon('M7 7h10v10H7z'),
  plus: icon('M12 5v14M5 12h14'),
  copy: icon('M9 9h11v11H9zM5 15H4V4h11v1'),
  edit: icon('M4 20h4L19 9l-4-4L4 16z'),
  again: icon('M20 11a8 8 0 1 0-2.3 6.3M20 4v7h-7'),
  bin: icon('M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13'),
  left: icon('M14 6l-6 6 6 6'),
  right: icon('M10 6l6 6-6 6'),
  close: icon('M6 6l12 12M18 6L6 18'),
};
