// A calculator for the model: numbers, + - * / % ^, parentheses, functions and constants. It reads the text itself, so nothing of it is ever run as
// a program.

const CONSTANTS = { pi: Math.PI, e: Math.E };
const FUNCTIONS = {
  ...{ sqrt: Math.sqrt, abs: Math.abs, round: Math.round, floor: Math.floor, ceil: Math.ceil, exp: Math.exp },
  ...{ ln: Math.log, log: Math.log10, log2: Math.log2, sin: Math.sin, cos: Math.cos, tan: Math.tan, min: Math.min, max: Math.max },
};
/** Parentheses and signs inside one another; more would be no sum but an attack on the stack. */
const DEEPEST = 100;

/** The value of a sum. Throws an Error that says what is wrong and where. */
export function calculate(text) {
  const tokens = tokensOf(text);
  let at = 0;
  let depth = 0;
  const next = () => tokens[at];
  const take = (wanted) => (tokens[at]?.text === wanted ? (at++, true) : false);
  const fail = () => {
    const found = next();
    throw new Error(found === undefined ? 'the sum ends too early' : `“${found.text}” at position ${found.from + 1} does not fit there`);
  };

  const value = () => {
    const token = next();
    if (token === undefined) fail();
    at++;
    if (token.kind === 'number') return Number(token.text);
    if (token.text === '(') {
      const inner = sum();
      if (!take(')')) fail();
      return inner;
    }
    if (token.kind === 'name') {
      const name = token.text.toLowerCase();
      if (Object.hasOwn(CONSTANTS, name)) return CONSTANTS[name];
      if (!Object.hasOwn(FUNCTIONS, name))
        throw new Error(`there is no “${token.text}”; there are ${[...Object.keys(FUNCTIONS), ...Object.keys(CONSTANTS)].join(', ')}`);
      if (!take('(')) fail();
      const given = [sum()];
      while (take(',')) given.push(sum());
      if (!take(')')) fail();
      return FUNCTIONS[name](...given);
    }
    at--;
    return fail();
  };
  // -2^2 is -4, and 2^-1 is a half.
  const signed = () => {
    if (++depth > DEEPEST) throw new Error('the sum has too many parentheses');
    try {
      if (take('-')) return -signed();
      if (take('+')) return signed();
      const base = value();
      return take('^') ? base ** signed() : base;
    } finally {
      depth--;
    }
  };
  const product = () => {
    let result = signed();
    for (;;) {
      if (take('*')) result *= signed();
      else if (take('/')) result /= signed();
      else if (take('%')) result %= signed();
      else return result;
    }
  };
  const sum = () => {
    let result = product();
    for (;;) {
      if (take('+')) result += product();
      else if (take('-')) result -= product();
      else return result;
    }
  };

  const result = sum();
  if (next() !== undefined) fail();
  if (!Number.isFinite(result)) throw new Error(`the result is no number (${result})`);
  // 0.1 + 0.2 is 0.3 for whoever asks.
  return Number(result.toPrecision(15));
}

function tokensOf(text) {
  const tokens = [];
  // Signs as people write them.
  const plain = text.replaceAll('×', '*').replaceAll('·', '*').replaceAll('÷', '/').replaceAll('−', '-').replaceAll('**', '^');
  const pattern = /\s*(?:(?<number>(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)|(?<name>[a-z_]\w*)|(?<sign>[-+*/%^(),]))/giy;
  while (pattern.lastIndex < plain.trimEnd().length) {
    const from = pattern.lastIndex;
    const found = pattern.exec(plain);
    if (found === null) throw new Error(`“${[...plain.slice(from).trim()][0]}” at position ${from + 1} is no part of a sum`);
    const [kind, part] = Object.entries(found.groups).find(([, value]) => value !== undefined);
    tokens.push({ kind, text: part, from: pattern.lastIndex - part.length });
  }
  return tokens;
}
