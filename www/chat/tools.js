// The tools that come with the page: the time, a calculator, and the fetch of an address, for which a person is asked first. What they give goes back to
// the model as text.

import { wellFormed } from '../conversations/text.js';
import { calculate } from './calculator.js';

/** Characters of a fetched page that the model gets: small models have small contexts. */
const MOST_CHARACTERS = 6000;
const MOST_BYTES = 2e6;
const FETCH_MS = 20_000;

const tool = (name, description, properties, required) => ({
  type: 'function',
  function: { name, description, parameters: { type: 'object', properties, required } },
});

export const TOOLS = {
  clock: {
    label: 'Clock',
    words: 'Date and time of this device.',
    definition: tool(
      'clock',
      'The current date and time',
      { time_zone: { type: 'string', description: 'An IANA time zone such as Europe/Oslo; default: the user’s' } },
      [],
    ),
    run: ({ time_zone }) => timeIn(time_zone),
  },
  calculator: {
    label: 'Calculator',
    words: 'Sums with + − × ÷ ^, parentheses and functions.',
    definition: tool('calculator', 'Computes a sum exactly', { expression: { type: 'string', description: 'Such as (3 + 4) * sqrt(2)' } }, [
      'expression',
    ]),
    run: ({ expression }) => String(calculate(String(expression))),
  },
  fetch_address: {
    label: 'Fetch an address',
    words: 'Reads a web page. You are asked each time; its server has to allow it (CORS).',
    definition: tool(
      'fetch_address',
      'Reads the text of a web page',
      { url: { type: 'string', description: 'An address that begins with https://' } },
      ['url'],
    ),
    run: ({ url }, { consent, signal }) => fetchAddress(String(url), consent, signal),
  },
};

/** The definitions of those that are switched on, for a request. */
export const definitionsOf = (names) => names.filter((name) => Object.hasOwn(TOOLS, name)).map((name) => TOOLS[name].definition);

/** Whether the page itself answers calls of this name. */
export const isBuiltIn = (name) => Object.hasOwn(TOOLS, name);

/**
 * What a call gives, as text; what goes wrong is told to the model, which may try otherwise. `consent(url)` resolves to whether a person allows it. Rejects
 * if the signal is aborted, and never else.
 */
export async function runTool({ name, arguments: text }, context) {
  try {
    const given = JSON.parse(text === '' ? '{}' : text);
    if (typeof given !== 'object' || given === null || Array.isArray(given)) throw new Error('the arguments are no object');
    return await TOOLS[name].run(given, context);
  } catch (error) {
    if (context.signal.aborted) throw error;
    return `Error: ${error.message}`;
  }
}

function timeIn(timeZone) {
  const zone = typeof timeZone === 'string' && timeZone !== '' ? timeZone : undefined;
  const words = new Intl.DateTimeFormat('en-GB', {
    dateStyle: 'full',
    timeStyle: 'long',
    ...(zone === undefined ? {} : { timeZone: zone }),
  });
  return words.format(new Date());
}

async function fetchAddress(text, consent, signal) {
  if (!URL.canParse(text)) throw new Error(`${text} is no address`);
  const url = new URL(text);
  if (url.protocol !== 'https:' && url.protocol !== 'http:') throw new Error('only addresses of http and https can be fetched');
  if (!(await consent(url.href))) return 'The user did not allow this address to be fetched.';
  let response;
  try {
    response = await fetch(url, {
      credentials: 'omit',
      referrerPolicy: 'no-referrer',
      // Where it leads, nobody was asked.
      redirect: 'manual',
      signal: AbortSignal.any([signal, AbortSignal.timeout(FETCH_MS)]),
    });
  } catch (error) {
    if (signal.aborted) throw error;
    throw new Error(`${url.host} can’t be read: it does not answer, or it does not allow pages of other sites to read it`);
  }
  if (response.type === 'opaqueredirect')
    throw new Error(`${url.host} redirects to another address, which the user has not allowed: ask for that address itself`);
  if (!response.ok) throw new Error(`${url.host} answered with status ${response.status}`);
  const type = response.headers.get('content-type') ?? '';
  if (!/text|json|xml|javascript/.test(type)) throw new Error(`${url.host} sent ${type || 'something without a type'}, which is no text`);
  const body = await firstBytes(response);
  return shortened(/html/.test(type) ? wordsOf(body) : body);
}

/** The beginning of a body, as text; a server may send more than a page can hold. */
async function firstBytes(response) {
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  let text = '';
  let bytes = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return text + decoder.decode();
    text += decoder.decode(value, { stream: true });
    bytes += value.length;
    if (bytes > MOST_BYTES) {
      await reader.cancel();
      return text;
    }
  }
}

/** The words of a page. A parsed document runs no script and loads nothing. */
function wordsOf(html) {
  const page = new DOMParser().parseFromString(html, 'text/html');
  for (const element of page.querySelectorAll('script, style, noscript, template, svg, nav, footer')) element.remove();
  return (page.body?.textContent ?? '')
    .replace(/[ \t]+/g, ' ')
    .replace(/\s*\n\s*/g, '\n')
    .trim();
}

function shortened(text) {
  if (text.length <= MOST_CHARACTERS) return text;
  return `${wellFormed(text.slice(0, MOST_CHARACTERS))}\n[cut: ${text.length - MOST_CHARACTERS} characters more]`;
}
