// The settings of an answer: each with its name in a request, its bounds and a word on what it does. A field that is left empty is not sent, so the
// engine's default holds. Knows nothing of how they are shown.

const number = (name, label, words, { min, max, step = 0.05, above, usual }) => ({
  name,
  label,
  words,
  min,
  max,
  step,
  above,
  usual,
  kind: 'number',
});
const whole = (name, label, words, { min, max, usual }) => ({ name, label, words, min, max, step: 1, usual, kind: 'integer' });

/** What `linesOf` reads. */
const ESCAPES = 'A new line is written \\n, a tab \\t, a backslash \\\\.';

/** `usual` is shown in an empty field: what holds then. */
export const SETTINGS = [
  {
    title: 'Length and randomness',
    fields: [
      whole('max_tokens', 'Longest answer, tokens', 'The answer is cut there.', { min: 1, usual: 'to the end of the context' }),
      number('temperature', 'Temperature', '0 always takes the most likely token; more is more varied.', {
        min: 0,
        max: 2,
        usual: 'greedy (0)',
      }),
      whole('seed', 'Seed', 'The same seed and settings give the same answer again.', {
        min: 0,
        max: Number.MAX_SAFE_INTEGER,
        usual: 'random',
      }),
    ],
  },
  {
    title: 'Which tokens may come',
    fields: [
      whole('top_k', 'Top k', 'Only this many of the most likely tokens.', { min: 0, usual: 'all (0)' }),
      number('top_p', 'Top p', 'Only the most likely tokens that together reach this probability.', {
        min: 0,
        above: 0,
        max: 1,
        usual: 'all (1)',
      }),
      number('min_p', 'Min p', 'Only tokens at least this times as likely as the most likely one.', { min: 0, max: 1, usual: 'all (0)' }),
      number('typical_p', 'Typical p', 'Only tokens that are about as surprising as was to be expected.', {
        min: 0,
        above: 0,
        max: 1,
        usual: 'all (1)',
      }),
      number('top_n_sigma', 'Top n sigma', 'Only tokens at most this many standard deviations below the best.', {
        min: 0,
        max: 100,
        step: 0.1,
        usual: 'all (0)',
      }),
      number('xtc_probability', 'XTC probability', 'How often the likeliest tokens are left out, for less usual words.', {
        min: 0,
        max: 1,
        usual: 'never (0)',
      }),
      number('xtc_threshold', 'XTC threshold', 'How likely a token has to be for that.', { min: 0, max: 1, usual: '0.1' }),
      number('dynatemp_range', 'Dynamic temperature', 'The temperature moves by this much, with how sure the model is.', {
        min: 0,
        max: 2,
        usual: 'off (0)',
      }),
      number('dynatemp_exponent', 'Its exponent', 'How fast it moves.', { min: 0, above: 0, max: 10, step: 0.1, usual: '1' }),
      {
        name: 'logit_bias',
        label: 'Likelier or less likely tokens',
        words: 'One a line: the id of a token and a number from -100 (almost never) to 100 (almost always).',
        kind: 'biases',
        usual: 'none',
      },
      {
        name: 'suppress_tokens',
        label: 'Tokens that never come',
        words: 'Their ids, with spaces or commas between them.',
        kind: 'ids',
        usual: 'none',
      },
      { name: 'bad_words', label: 'Texts that never come', words: `One a line. ${ESCAPES}`, kind: 'lines', most: 256, usual: 'none' },
    ],
  },
  {
    title: 'Repetition',
    fields: [
      number('repetition_penalty', 'Repetition penalty', 'Above 1, tokens that were there already become less likely.', {
        min: 0,
        above: 0,
        max: 100,
        usual: 'off (1)',
      }),
      number('frequency_penalty', 'Frequency penalty', 'The same, for each time that the answer has the token.', {
        min: -2,
        max: 2,
        step: 0.1,
        usual: 'off (0)',
      }),
      number('presence_penalty', 'Presence penalty', 'The same, once for each token of the answer.', {
        min: -2,
        max: 2,
        step: 0.1,
        usual: 'off (0)',
      }),
      whole('repeat_last_n', 'Window of these three', 'How many tokens back they look; -1 is all.', { min: -1, usual: 'all (-1)' }),
      number('dry_multiplier', 'DRY multiplier', 'Against going on with a repetition; 0.8 is usual.', {
        min: 0,
        max: 100,
        step: 0.1,
        usual: 'off (0)',
      }),
      number('dry_base', 'DRY base', 'How fast that grows with the length of the repetition.', { min: 1, max: 100, usual: '1.75' }),
      whole('dry_allowed_length', 'DRY allowed length', 'Repetitions up to this many tokens cost nothing.', {
        min: 1,
        max: 1024,
        usual: '2',
      }),
      whole('dry_penalty_last_n', 'DRY window', 'How many tokens back it looks; -1 is all.', { min: -1, usual: 'all (-1)' }),
      {
        name: 'dry_sequence_breakers',
        label: 'DRY breakers',
        words: `Texts that no repetition reaches across, one a line. ${ESCAPES}`,
        kind: 'lines',
        most: 256,
        usual: '\\n  :  "  *',
      },
    ],
  },
  {
    title: 'Mirostat',
    fields: [
      {
        name: 'mirostat',
        label: 'Mirostat 2',
        words: 'Holds the surprise of the text near a target, in place of the choices above.',
        kind: 'switch',
        on: 2,
      },
      number('mirostat_tau', 'Its target', 'In bits; more is more varied.', { min: 0, above: 0, max: 100, step: 0.1, usual: '5' }),
      number('mirostat_eta', 'Its rate', 'How fast it follows.', { min: 0, above: 0, max: 1, usual: '0.1' }),
    ],
  },
  {
    title: 'Ends and reasoning',
    fields: [
      {
        name: 'stop',
        label: 'Stop texts',
        words: `Up to four, one a line. The answer ends before them. ${ESCAPES}`,
        kind: 'lines',
        most: 4,
        usual: 'none',
      },
      {
        name: 'stop_token_ids',
        label: 'Stop tokens',
        words: 'Up to 64 ids, with spaces or commas between them. The answer ends before them.',
        kind: 'ids',
        most: 64,
        usual: 'none',
      },
      {
        name: 'include_stop_str_in_output',
        label: 'Keep what ended the answer',
        words: 'The stop text or stop token stays at the end of the answer.',
        kind: 'switch',
        on: true,
      },
      {
        name: 'ignore_eos',
        label: 'Write on after the end',
        words: 'For measurements: the answer goes on where the model wants to end it, up to its longest length.',
        kind: 'switch',
        on: true,
      },
      whole('min_tokens', 'Shortest answer, tokens', 'The model does not end its answer before.', { min: 0, usual: '0' }),
      {
        name: 'reasoning_effort',
        label: 'Reasoning effort',
        words: 'How long a model that thinks may think before it answers.',
        kind: 'choice',
        choices: ['none', 'minimal', 'low', 'medium', 'high'],
        usual: 'as the model likes',
      },
      whole('thinking_token_budget', 'Longest reasoning, tokens', 'A model that thinks is made to answer after this many.', {
        min: 0,
        usual: 'no limit',
      }),
      {
        name: 'context_shift',
        label: 'Go on when the context is full',
        words: 'Drops the older half of the conversation in place of ending the answer.',
        kind: 'switch',
        on: true,
      },
    ],
  },
];

export const FIELDS = SETTINGS.flatMap(({ fields }) => fields);

/** A page's own defaults; all else is the engine's. */
export const DEFAULTS = { temperature: '0', max_tokens: '1024' };

/** What is wrong with the text of a field, in words; undefined if nothing is. */
export function faultOf({ kind, label, min, max, above, most }, text) {
  if (text === undefined || text === '' || text === false) return undefined;
  if (kind === 'lines') {
    const count = linesOf(text).length;
    return count > most ? `${label}: ${count} lines, at most ${most} are possible.` : undefined;
  }
  if (kind === 'ids') return faultOfIds(label, idsOf(text), most);
  if (kind === 'biases') return faultOfBiases(label, linesOf(text));
  if (kind !== 'number' && kind !== 'integer') return undefined;
  const value = Number(text);
  const range =
    max === undefined || max === Number.MAX_SAFE_INTEGER
      ? `${above === min ? 'above' : 'of at least'} ${min}`
      : `${above === min ? `above ${min} and at most` : `from ${min} to`} ${max}`;
  const wanted = `${label} has to be a ${kind === 'integer' ? 'whole ' : ''}number ${range}.`;
  if (text.trim() === '' || !Number.isFinite(value) || value < min || value > (max ?? Infinity) || (above === min && value === min))
    return wanted;
  return kind === 'integer' && !Number.isInteger(value) ? wanted : undefined;
}

/** The texts of fields as fields of a request, and what is wrong with them: {fields, faults}. */
export function readSettings(texts) {
  const fields = {};
  const faults = [];
  for (const field of FIELDS) {
    const text = texts[field.name];
    if (text === undefined || text === '' || text === false) continue;
    const fault = faultOf(field, text);
    if (fault !== undefined) faults.push(fault);
    else fields[field.name] = readValue(field, text);
  }
  if (fields.temperature === undefined) fields.temperature = 0;
  return { fields, faults };
}

function readValue({ kind, on }, text) {
  if (kind === 'switch') return on;
  if (kind === 'lines') return linesOf(text);
  if (kind === 'ids') return idsOf(text).map(Number);
  if (kind === 'biases') return Object.fromEntries(linesOf(text).map((line) => biasOf(line).map(Number)));
  return kind === 'choice' ? text : Number(text);
}

const ESCAPED = { n: '\n', t: '\t', '\\': '\\' };
const linesOf = (text) =>
  text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => line.replace(/\\([nt\\])/g, (_, kind) => ESCAPED[kind]));

const LARGEST_ID = 2 ** 32 - 1;
const isId = (text) => /^\d+$/.test(text) && Number(text) <= LARGEST_ID;
const idsOf = (text) => text.split(/[\s,]+/).filter((id) => id !== '');

function faultOfIds(label, ids, most = Infinity) {
  const wrong = ids.find((id) => !isId(id));
  if (wrong !== undefined) return `${label}: "${wrong}" is not the id of a token, which is a whole number.`;
  return ids.length > most ? `${label}: ${ids.length} ids, at most ${most} are possible.` : undefined;
}

/** The id and the number of a line. */
const biasOf = (line) => line.trim().split(/[\s,:=]+/);

const MAX_BIAS = 100;

function faultOfBiases(label, lines) {
  const wrong = lines.find((line) => {
    const [id, bias, ...more] = biasOf(line);
    return more.length > 0 || !isId(id) || !(Math.abs(Number(bias)) <= MAX_BIAS);
  });
  return wrong === undefined ? undefined : `${label}: "${wrong}" is not the id of a token and a number from -${MAX_BIAS} to ${MAX_BIAS}.`;
}
