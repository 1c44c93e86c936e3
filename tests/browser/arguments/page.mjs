// What the tests of arguments run in a page: values that are no arguments, and what becomes of a call with one.

/** Name → what makes the value. */
export const BAD = {
  undefined: () => undefined,
  null: () => null,
  5: () => 5,
  '-1': () => -1,
  NaN: () => Number.NaN,
  Infinity: () => Number.POSITIVE_INFINITY,
  true: () => true,
  'an empty text': () => '',
  'half of a pair': () => '\ud800',
  'an object': () => ({}),
  'an array': () => [],
  'a frozen object': () => Object.freeze({ unknown: 1 }),
  'a symbol': () => Symbol('bad'),
  'a bigint': () => 5n,
  'a function': () => () => {},
  'getters that throw': () => {
    const thrower = {
      get() {
        throw new Error('a getter threw');
      },
      enumerable: true,
    };
    const names = [
      'messages',
      'prompt',
      'input',
      'signal',
      'length',
      'size',
      'cache',
      'worker',
      'shape',
      'dim',
      'bindings',
      'then',
      'source',
    ];
    return Object.defineProperties({}, Object.fromEntries(names.map((name) => [name, thrower])));
  },
  'a proxy that throws': () => {
    const fail = () => {
      throw new Error('a proxy threw');
    };
    return new Proxy({}, { get: fail, has: fail, ownKeys: fail, getPrototypeOf: fail, getOwnPropertyDescriptor: fail });
  },
  'a revoked proxy': () => {
    const { proxy, revoke } = Proxy.revocable({}, {});
    revoke();
    return proxy;
  },
  'a cycle': () => {
    const cycle = { messages: [] };
    cycle.messages.push(cycle);
    return cycle;
  },
  'a deep array': () => {
    let deep = [];
    for (let depth = 0; depth < 20_000; depth++) deep = [deep];
    return deep;
  },
  'a huge array': () => Array(2 ** 32 - 1),
  'a huge length': () => ({ length: 2 ** 53 - 1 }),
  'a detached buffer': () => {
    const bytes = new Uint8Array(8);
    structuredClone(bytes.buffer, { transfer: [bytes.buffer] });
    return bytes;
  },
  'an object that throws as text': () => ({
    toString() {
      throw new Error('toString threw');
    },
  }),
  'an object without a prototype': () => Object.create(null),
};

/** How long a call may take. */
const MOST_MS = 10_000;

/** What became of a call: `value`, or what it threw or rejected with. */
export async function outcomeOf(call, value, isError) {
  let timer;
  const late = new Promise((resolve) => (timer = setTimeout(() => resolve({ hangs: true }), MOST_MS)));
  const told = (error, isThrown) => {
    let named = 'unprintable';
    try {
      named = String(error);
    } catch {}
    return isError(error) ? { code: error.code, message: error.message, isThrown } : { foreign: named, isThrown };
  };
  const outcome = async () => {
    let called;
    try {
      called = call(value);
    } catch (error) {
      return told(error, true);
    }
    try {
      const result = await called;
      // A stream is no answer before its end.
      if (result?.[Symbol.asyncIterator] !== undefined) await result.return();
      return { value: true };
    } catch (error) {
      return told(error, false);
    }
  };
  const result = await Promise.race([outcome(), late]);
  clearTimeout(timer);
  return result;
}
