// docs/tensors.md in Chromium: each block of JavaScript is run and what it prints compared with the comments beside it, the tables of dtypes are
// tried, and the tables of operations are held to the methods that there are.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { CANVAS_ARGS, openStage, root } from './browser.mjs';

const LIMIT = { timeout: 60_000 };
const TENSOR = { package: '/rillm/dist/tensor/index.js' };
const PAGE = readFileSync(join(root, 'docs/tensors.md'), 'utf8');

/** What the page says that its blocks run after. Here they share a device, whose kernels are compiled once. */
const PRELUDE = "import { Device } from 'rillm/tensor';\nconst device = await Device.request();\n";
const SHARED = "import { Device } from 'rillm/tensor'; const { device } = globalThis;";

let stage;
before(async () => (stage = await openStage({ args: CANVAS_ARGS })));
after(() => stage.close());

/** The blocks, each with the line of the page that it begins after. */
const BLOCKS = Array.from(PAGE.matchAll(/```js\n([\s\S]*?)```/g), ({ 1: code, index }) => ({
  code,
  line: PAGE.slice(0, index).split('\n').length,
}));

/** What the block prints by its comments: what follows `// ` after each console.log. */
function wanted(code) {
  return Array.from(code.matchAll(/console\.log\(.*\); \/\/ (.*)$/gm), ([, text]) => text);
}

/** The table after a comment: the cells of its rows, the header's first. */
function tableAfter(comment) {
  const [, rest] = PAGE.split(`<!-- ${comment} -->\n`);
  const rows = rest.split('\n\n')[0].split('\n');
  const cells = rows.map((row) =>
    row
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.replaceAll(/[*`]/g, '').trim()),
  );
  return cells.filter((_, row) => row !== 1);
}

test('every block runs and prints what stands beside it', LIMIT, async () => {
  assert.ok(PAGE.includes(`<!-- prelude -->\n\`\`\`js\n${PRELUDE}\`\`\``), 'the lines before each block');
  const blocks = BLOCKS.filter(({ code }) => code !== PRELUDE);
  assert.ok(blocks.length > 20);
  const codes = blocks.map(({ code }) => (code.includes('const device =') ? code : SHARED + code));
  const ran = await stage.runWith(
    TENSOR,
    (modules) =>
      withDevice({}, async (device) => {
        globalThis.device = device;
        const shown = (value, isInside = false) => {
          if (typeof value === 'string') return isInside ? `'${value}'` : value;
          if (typeof value === 'number') return String(Number.isInteger(value) ? value : Number(value.toPrecision(6)));
          if (ArrayBuffer.isView(value)) return `${value.constructor.name} ${shown([...value])}`;
          if (Array.isArray(value)) return `[${value.map((part) => shown(part, true)).join(', ')}]`;
          return String(value);
        };
        const { log } = console;
        const ran = [];
        for (const code of modules) {
          const printed = [];
          console.log = (...values) => printed.push(values.map((value) => shown(value)).join(' '));
          const address = URL.createObjectURL(new Blob([code], { type: 'text/javascript' }));
          device.gpuDevice.pushErrorScope('validation');
          let error;
          try {
            await device.tidy(() => import(address));
            await device.sync();
          } catch (thrown) {
            error = String(thrown?.stack ?? thrown);
          }
          const refused = await device.gpuDevice.popErrorScope();
          ran.push({ printed, error: error ?? refused?.message });
        }
        console.log = log;
        return ran;
      }),
    codes,
  );
  for (const [at, { code, line }] of blocks.entries()) {
    const where = `docs/tensors.md, the block after line ${line}`;
    assert.equal(ran[at].error, undefined, where);
    assert.deepEqual(ran[at].printed, wanted(code), where);
  }
});

test('dtypes meet as the tables say', LIMIT, async () => {
  const [[, ...dtypes], ...promotion] = tableAfter('promotion');
  const [, ...numbers] = tableAfter('numbers');
  const got = await stage.runWith(
    TENSOR,
    ([dtypes, numbers]) =>
      withDevice({}, async (device) => {
        const of = (work) => {
          try {
            return work().dtype;
          } catch ({ code }) {
            return code === 'out_of_range' ? 'refused' : code;
          }
        };
        const one = (dtype) => device.ones([1], dtype);
        return {
          promotion: dtypes.map((a) => [a, ...dtypes.map((b) => of(() => one(a).add(one(b))))]),
          numbers: numbers.map((number) => [number, ...dtypes.map((dtype) => of(() => one(dtype).add(Number(number))))]),
        };
      }),
    dtypes,
    numbers.map(([number]) => number),
  );
  assert.equal(dtypes.length, 6);
  assert.deepEqual(got, { promotion, numbers });
});

/** What tensors have for operations to be built on. */
const INSIDE = ['constructor', 'made', 'madeAll', 'idOf', 'idOrNone'];

test('the tables name every method of tensors, and none that there is not', LIMIT, async () => {
  const [, tables] = PAGE.split('## All operations');
  const { methods, functions, missing, codes } = await stage.runWith(
    TENSOR,
    (calls) => {
      const { Tensor, Device, ERROR_CODES } = rillm;
      const methods = new Set();
      for (let type = Tensor.prototype; type !== Object.prototype; type = Object.getPrototypeOf(type)) {
        for (const name of Object.getOwnPropertyNames(type)) methods.add(name);
      }
      const has = ([owner, name]) => name in (owner === 'device' ? Device : Tensor).prototype;
      return {
        methods: [...methods],
        functions: Object.keys(rillm).filter((name) => /^[a-z]/.test(name)),
        missing: calls.filter((call) => !has(call)),
        codes: [...ERROR_CODES],
      };
    },
    [...tables.matchAll(/\b(x|q|condition|device)\.(\w+)\(/g)].map(([, owner, name]) => [owner, name]),
  );
  assert.deepEqual(missing, []);
  assert.deepEqual(
    methods.filter((name) => !INSIDE.includes(name) && !new RegExp(`\\b(x|q|condition)\\.${name}\\b`).test(tables)),
    [],
  );
  assert.deepEqual(
    functions.filter((name) => !methods.includes(name) && ![`device.${name}(`, `\`${name}(`].some((call) => tables.includes(call))),
    ['isAvailable', 'listAdapters'],
  );
  const [, errors] = PAGE.split('## Errors');
  const named = errors
    .split('\n## ')[0]
    .split('\n')
    .flatMap((row) => (row.startsWith('| `') ? [...row.split('|')[1].matchAll(/`(\w+)`/g)].map(([, code]) => code) : []));
  assert.ok(named.length > 10);
  assert.deepEqual(
    named.filter((code) => !codes.includes(code)),
    [],
  );
});
