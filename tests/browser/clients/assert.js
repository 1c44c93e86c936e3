// The few assertions of node:assert that tests in a page use. What fails says what there was.

class AssertionError extends Error {}

const shown = (value) => JSON.stringify(value, (_, part) => (part === undefined ? 'undefined' : part)) ?? String(value);

function fail(message, ...values) {
  throw new AssertionError(`${message ?? 'not as expected'}: ${values.map(shown).join('\n   instead of ')}`);
}

/** The same types, keys and values, in objects of whatever class. */
function same(a, b) {
  if (Object.is(a, b)) return true;
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null || Array.isArray(a) !== Array.isArray(b)) return false;
  const names = Object.keys(a);
  return names.length === Object.keys(b).length && names.every((name) => Object.hasOwn(b, name) && same(a[name], b[name]));
}

export function assert(value, message) {
  if (!value) fail(message, value, true);
}

Object.assign(assert, {
  ok: assert,
  equal: (a, b, message) => Object.is(a, b) || fail(message, a, b),
  deepEqual: (a, b, message) => same(a, b) || fail(message, a, b),
  match: (text, pattern) => pattern.test(text) || fail(`no ${pattern}`, text),
  /** `check` looks at the error and throws, or returns whether it is the right one. */
  async rejects(work, check) {
    let error;
    try {
      await (typeof work === 'function' ? work() : work);
    } catch (thrown) {
      error = thrown;
    }
    if (error === undefined) fail('it did not reject');
    if (check(error) === false) fail('another error', { name: error.name, message: error.message, code: error.code, status: error.status });
  },
});
