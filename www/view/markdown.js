// Markdown as it streams: block by block, so that what is finished stays as it is (also under a selection) and a long answer costs no more per token than a
// short one. What a model writes is not trusted: HTML of its is shown as text, what is left goes through DOMPurify, and nothing is fetched (pictures
// become links), since an address could carry away what was said.

import DOMPurify from 'dompurify';
import { directive, Directive } from 'lit-html/directive.js';
import { noChange } from 'lit-html';
import { Marked } from 'marked';

/** A block that is longer is shown as plain text: to look for signs in it would take longer than a frame. */
const LONGEST_BLOCK = 20_000;
/** The few tags that models write in place of Markdown. */
const PLAIN_TAG = /^<\/?(?:br|sub|sup|kbd|mark|u)\s*\/?>$/i;
const ALLOWED_TAGS = [
  ...['p', 'br', 'hr', 'strong', 'em', 'del', 'code', 'pre', 'blockquote', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6'],
  ...['ul', 'ol', 'li', 'table', 'thead', 'tbody', 'tr', 'th', 'td', 'a', 'sub', 'sup', 'kbd', 'mark', 'u'],
];
const ALLOWED_ATTR = ['href', 'align', 'start', 'class'];

const escaped = (text) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');

/** Maths between $, $$, \( \) and \[ \]; a price of $5 or $10 is none. */
const maths = [
  {
    name: 'mathsBlock',
    level: 'block',
    start: (text) => text.match(/^ {0,3}(?:\$\$|\\\[)/m)?.index,
    tokenizer(text) {
      const [raw, dollars, brackets] = text.match(/^ {0,3}(?:\$\$([^$]+?)\$\$|\\\[([\s\S]+?)\\\])(?: *(?:\n|$))/) ?? [];
      if (raw !== undefined) return { type: 'mathsBlock', raw, text: (dollars ?? brackets).trim() };
    },
    renderer: ({ text }) => `<p><code class="tex block">${escaped(text)}</code></p>\n`,
  },
  {
    name: 'maths',
    level: 'inline',
    start: (text) => text.match(/\$|\\[([]/)?.index,
    tokenizer(text) {
      const [raw, block, dollars, round, square] =
        text.match(/^(?:\$\$([^$\n]+?)\$\$|\$(?!\s)([^$\n]+?)(?<![\s\\])\$(?![\d\w])|\\\((.+?)\\\)|\\\[(.+?)\\\])/) ?? [];
      if (raw !== undefined)
        return {
          type: 'maths',
          raw,
          text: (block ?? dollars ?? round ?? square).trim(),
          display: block !== undefined || square !== undefined,
        };
    },
    renderer: ({ text, display }) => `<code class="tex${display ? ' block' : ''}">${escaped(text)}</code>`,
  },
];

const marked = new Marked({
  gfm: true,
  extensions: maths,
  renderer: {
    // The page's own heading is above them.
    heading({ tokens, depth }) {
      const level = Math.min(6, depth + 1);
      return `<h${level}>${this.parser.parseInline(tokens)}</h${level}>\n`;
    },
    html: ({ text }) => (PLAIN_TAG.test(text.trim()) ? text : escaped(text)),
    image: ({ href, text }) => `<a href="${escaped(href)}">${escaped(text || 'picture')}</a>`,
    checkbox: ({ checked }) => (checked ? '☑ ' : '☐ '),
  },
});

/** Puts a text into an element, as often as it grows. */
export class MarkdownView {
  #element;
  #text = '';
  #isDone = false;
  /** Where the blocks begin that may still change, in the text and in the element. */
  #stableText = 0;
  #stableNodes = 0;

  constructor(element) {
    this.#element = element;
  }

  update(text, isDone) {
    if (text === this.#text && isDone === this.#isDone) return;
    const goesOn = text.startsWith(this.#text);
    // A definition of a link at the end counts for all that came before it.
    const isWhole = !goesOn || (isDone && !this.#isDone && /^ {0,3}\[[^\]]+\]:/m.test(text));
    if (isWhole) this.#stableText = this.#stableNodes = 0;
    this.#text = text;
    this.#isDone = isDone;
    while (this.#element.childNodes.length > this.#stableNodes) this.#element.lastChild.remove();
    const tail = text.slice(this.#stableText);
    if (isTooLong(tail)) {
      this.#element.append(plain(tail));
      return;
    }
    const tokens = marked.lexer(tail);
    const { links } = tokens;
    // The last block may go on; white space after it belongs to it.
    const last = isDone ? -1 : tokens.findLastIndex(({ type }) => type !== 'space');
    tokens.forEach((token, i) => {
      const block = Object.assign([token], { links });
      this.#element.append(token.raw.length > LONGEST_BLOCK && token.type !== 'code' ? plain(token.raw) : rendered(block));
      if (last > 0 && i === last - 1) {
        this.#stableText += tokens.slice(0, last).reduce((sum, { raw }) => sum + raw.length, 0);
        this.#stableNodes = this.#element.childNodes.length;
      }
    });
  }
}

const isTooLong = (text) => text.length > LONGEST_BLOCK && !/\n\s*\n/.test(text) && !/^\s*(?:```|~~~)/.test(text);

function plain(text) {
  const element = document.createElement('p');
  element.className = 'plain';
  element.dir = 'auto';
  element.textContent = text;
  return element;
}

function rendered(tokens) {
  const fragment = DOMPurify.sanitize(marked.parser(tokens), {
    ALLOWED_TAGS,
    ALLOWED_ATTR,
    ALLOW_DATA_ATTR: false,
    ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
    RETURN_DOM_FRAGMENT: true,
  });
  // Each block has the direction of its first letters, and code is written from left to right.
  for (const block of fragment.children) block.dir = 'auto';
  for (const code of fragment.querySelectorAll('pre, code')) code.dir = 'ltr';
  for (const link of fragment.querySelectorAll('a')) {
    link.target = '_blank';
    link.rel = 'noopener noreferrer';
  }
  for (const pre of fragment.querySelectorAll('pre')) pre.replaceWith(codeBlock(pre));
  for (const table of fragment.querySelectorAll('table')) table.replaceWith(scrolling(table, 'Table'));
  for (const code of fragment.querySelectorAll('code.tex')) void showMaths(code);
  return fragment;
}

/** Code with its language and a button that copies it (`data-copy`, which the page listens for). */
function codeBlock(pre) {
  const language = pre.querySelector('code')?.className.match(/language-([\w+#.-]{1,30})/)?.[1] ?? '';
  const figure = document.createElement('figure');
  figure.className = 'code';
  const caption = document.createElement('figcaption');
  const name = document.createElement('span');
  name.textContent = language;
  const copy = document.createElement('button');
  copy.type = 'button';
  copy.dataset.copy = 'code';
  copy.append(Object.assign(document.createElement('span'), { textContent: 'Copy' }));
  copy.setAttribute('aria-label', language === '' ? 'Copy the code' : `Copy the code in ${language}`);
  caption.append(name, copy);
  const box = pre.cloneNode(true);
  box.tabIndex = 0;
  figure.append(caption, box);
  return figure;
}

function scrolling(element, label) {
  const box = document.createElement('div');
  box.className = 'scroll';
  // What scrolls has to be reached by the keyboard.
  box.tabIndex = 0;
  box.setAttribute('role', 'group');
  box.setAttribute('aria-label', label);
  box.append(element.cloneNode(true));
  return box;
}

/** A formula that is wider than its place scrolls, and what scrolls has to be reached by the keyboard. */
function reach(box) {
  const isBlock = box.classList.contains('block');
  const width = isBlock ? box.scrollWidth : box.getBoundingClientRect().width;
  if (width <= (isBlock ? box : box.parentElement).clientWidth) return;
  box.classList.add('wide');
  box.tabIndex = 0;
  box.setAttribute('role', 'group');
  box.setAttribute('aria-label', 'Formula');
}

let katex;

/** Turns the source of a formula into MathML; what is no formula stays as it is written. KaTeX is fetched with the first one. */
async function showMaths(code) {
  const source = code.textContent;
  try {
    katex ??= import('katex');
    const { default: engine } = await katex;
    const displayMode = code.classList.contains('block');
    const box = document.createElement('span');
    box.className = displayMode ? 'maths block' : 'maths';
    box.dir = 'ltr';
    engine.render(source, box, {
      displayMode,
      output: 'mathml',
      throwOnError: true,
      trust: false,
      maxExpand: 200,
      maxSize: 20,
    });
    code.replaceWith(box);
    reach(box);
  } catch {
    katex = katex && (await katex.catch(() => undefined)) ? katex : undefined;
    code.classList.add('unread');
  }
}

class MarkdownDirective extends Directive {
  #view;

  update({ element }, [text, isDone]) {
    this.#view ??= new MarkdownView(element);
    this.#view.update(text, isDone);
    return noChange;
  }

  render() {
    return noChange;
  }
}

/** `<div ${markdown(text, isDone)}></div>` */
export const markdown = directive(MarkdownDirective);
