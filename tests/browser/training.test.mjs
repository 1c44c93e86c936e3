// Gradients and training through JavaScript: the tape, what is freed, wrong calls, optimizers against PyTorch, and a step as a plan. What gradients
// are is held to PyTorch natively.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';

import { openStage } from './browser.mjs';

const LIMIT = { timeout: 60_000 };
const TENSOR = { package: '/rillm/dist/tensor/index.js' };

let stage;
before(async () => (stage = await openStage()));
after(() => stage.close());

const run = (fn, ...parameters) => stage.runWith(TENSOR, fn, ...parameters);

test('a backward pass, gradients that add up, and the tensor of a gradient', LIMIT, async () => {
  const got = await run(() =>
    withDevice({}, async (device) => {
      const values = async (tensor) => (tensor === undefined ? undefined : [...(await tensor.readback())]);
      const x = device.tensor([1, 2, 3]).requireGrad();
      const results = [x.requiresGrad, x.grad === undefined, x.mul(2).requiresGrad, x.detach().requiresGrad];
      const dispatches = device.stats().submits;
      x.mul(x).sum().backward();
      results.push(device.stats().submits - dispatches);
      const { grad } = x;
      results.push(await values(grad));
      x.mul(x).sum().backward();
      results.push(grad === x.grad, await values(grad));
      x.zeroGrad();
      results.push(grad.disposed, x.grad === undefined);
      x.exp().backward({ gradient: device.tensor([1, 0, 0]) });
      results.push(Math.abs((await values(x.grad))[0] - Math.E) < 1e-5);
      x.grad = device.tensor([7, 8, 9]);
      results.push(await values(x.grad));
      // An operation whose result is its input has a gradient of its own.
      const same = x.reshape([3]);
      results.push(same.grad === undefined, same.requiresGrad);
      results.push(device.noGrad(() => x.reshape([3]).requiresGrad));
      x.requiresGrad = false;
      results.push(x.requiresGrad);
      const before = device.memoryStats().tensors;
      const w = device.ones([2]).requireGrad();
      device.tidy(() => {
        w.mul(3).sum().backward();
        w.grad.mul(2);
      });
      results.push(await values(w.grad));
      w.dispose();
      return { results, left: device.memoryStats().tensors - before, operations: device.tape.numOps };
    }),
  );
  assert.deepEqual(got.results, [
    ...[true, true, true, false],
    0,
    [2, 4, 6],
    ...[true, [4, 8, 12]],
    ...[true, true, true],
    [7, 8, 9],
    ...[true, true, false, false],
    [3, 3],
  ]);
  assert.equal(got.left, 0);
});

test('the tape: gradients of an own kernel, a map of gradients, what is recorded, one operation alone', LIMIT, async () => {
  const got = await run(() =>
    withDevice({}, async (device) => {
      const values = async (tensor) => (tensor === undefined ? undefined : [...(await tensor.readback())]);
      const { tape } = device;
      const cube = await device.kernel({
        wgsl: `@group(0) @binding(0) var<storage, read> x: array<f32>; @group(0) @binding(1) var<storage, read_write> y: array<f32>;
          @compute @workgroup_size(WORKGROUP_X) fn main(@builtin(global_invocation_id) id: vec3u) {
            if (id.x < arrayLength(&x)) { y[id.x] = x[id.x] * x[id.x] * x[id.x]; }
          }`,
        bindings: ['read', 'read_write'],
      });
      const [x, w] = [device.tensor([1, 2, 3]).requireGrad(), device.tensor([2]).requireGrad()];
      const cubed = (backward) => {
        const y = device.zeros([3]);
        cube.dispatch({ bindings: [x, y], threads: [3] });
        tape.record('cube', [x], y, backward ?? ((gradient) => [gradient.mul(x.mul(x).mul(3))]));
        return y;
      };
      const before = device.memoryStats().tensors;
      const loss = device.tidy(() => cubed().mul(w).sum());
      const recorded = [tape.isEnabled, tape.numOps, tape.savedBytes > 0];
      const map = tape.backward(loss);
      const gradients = [map.size, await values(map.get(x)), await values(map.get(w)), x.grad === undefined];
      for (const gradient of map.values()) gradient.dispose();
      loss.dispose();
      const left = device.memoryStats().tensors - before;
      const failures = [
        await failure(() =>
          cubed(() => [device.ones([2])])
            .sum()
            .backward(),
        ),
        await failure(() =>
          cubed(() => 3)
            .sum()
            .backward(),
        ),
        await failure(() =>
          cubed(() => {
            throw new RangeError('mine');
          })
            .sum()
            .backward(),
        ),
        await failure(() => tape.record('cube', [x], device.zeros([3]), 3)),
        await failure(() => device.noGrad(async () => {})),
        await failure(() => x.write([1, 2, 3])),
        await failure(() => cube.dispatch({ bindings: [w, x], threads: [3] })),
        await failure(() => device.ones([2]).sum().backward()),
        await failure(() => x.exp().backward()),
        await failure(() => device.ones([2], 'i32').requireGrad()),
        await failure(() => x.exp().backward({ retain: true })),
      ].map(({ name, code, message }) => [code ?? name, message]);
      tape.disable();
      const off = [tape.isEnabled, x.exp().requiresGrad];
      tape.enable();
      const forgotten = x.exp().sum();
      tape.clear();
      const cleared = [tape.numOps, (await failure(() => forgotten.backward())).message];
      const { vjp } = rillm;
      const [a, b] = [device.tensor([1, 2, 3, 4], [2, 2]), device.tensor([5, 6], [2, 1])];
      const alone = [
        ...(await Promise.all(vjp('matmul', device.ones([2, 1]), a, b).map(values))),
        ...(await Promise.all(vjp('relu', device.ones([3]), device.tensor([-1, 0, 2])).map(values))),
        ...(await Promise.all(vjp('div', device.ones([2]), device.tensor([6, 8]), device.tensor([2, 4])).map(values))),
        ...(await Promise.all(vjp('gather', device.ones([1]), device.tensor([6, 8]), 0, device.tensor([1], [1], 'i32')).map(values))),
      ];
      return { recorded, gradients, left, failures, off, cleared, alone };
    }),
  );
  assert.deepEqual(got.recorded, [true, 3, true]);
  assert.deepEqual(got.gradients, [2, [6, 24, 54], [36], true]);
  assert.equal(got.left, 0);
  const codes = [
    ...['shape_mismatch', 'invalid_request', 'RangeError', 'invalid_request', 'invalid_request', 'invalid_request', 'invalid_request'],
    ...['invalid_request', 'shape_mismatch', 'dtype_mismatch', 'invalid_request'],
  ];
  assert.deepEqual(
    got.failures.map(([code]) => code),
    codes,
  );
  assert.match(got.failures[0][1], /cube: the gradient of input 0 is \[2\], wanted \[3\]/);
  assert.match(got.failures[5][1], /noGrad/);
  assert.deepEqual(got.off, [false, false]);
  assert.equal(got.cleared[0], 0);
  assert.match(got.cleared[1], /exp was freed|sum was freed/);
  assert.deepEqual(got.alone, [[5, 6, 5, 6], [4, 6], [0, 0, 1], [0.5, 0.25], [-1.5, -0.5], [0, 1], undefined]);
});

const GOLDEN = JSON.parse(readFileSync(new URL('../golden/tensor/optimizers.json', import.meta.url), 'utf8'));

test('optimizers, losses, clipping and schedules give what PyTorch gives for 100 steps, one by one and as a plan', LIMIT, async () => {
  const got = await run(
    ({ problem, ways }) =>
      withDevice({}, async (device) => {
        const x = device.tensor(problem.x, [6, 3]);
        const [y, classes] = [device.tensor(problem.y, [6, 4]), device.tensor(problem.classes, [6], 'i32')];
        const results = [];
        for (const [index, way] of ways.entries()) {
          const parameters = [device.tensor(problem.w, [3, 4]).requireGrad(), device.tensor(problem.b).requireGrad()];
          const schedule = {
            cosine: () => rillm.cosineSchedule({ steps: 100, to: 0.1 }),
            linear: () => rillm.linearSchedule({ steps: 100, to: 0.2 }),
          }[way.schedule]?.();
          const optimizer = new rillm[way.optimizer](parameters, { ...way.options, schedule });
          const step = () => {
            const out = x.matmul(parameters[0]).add(parameters[1]).tanh();
            const loss =
              way.loss === 'mse' ? out.mseLoss(y) : out.crossEntropy(classes, { labelSmoothing: way.loss === 'smoothed' ? 0.1 : 0 });
            loss.backward();
            if (way.clip !== null) rillm.clipGradNorm(parameters, way.clip);
            optimizer.step();
            optimizer.zeroGrad();
            return loss;
          };
          // Every second one as a plan.
          const plan = index % 2 === 1 ? await device.plan(step) : undefined;
          const [losses, kept] = [[], []];
          for (let done = 1; done <= 100; done++) {
            if (plan !== undefined && done > 1) plan.replay();
            const loss = plan?.result ?? device.tidy(step);
            const [[value], ...values] = await device.readback(loss, ...parameters);
            losses.push(value);
            kept.push(values.flatMap((values) => [...values]));
            if (plan === undefined) loss.dispose();
          }
          results.push({ losses, kept });
          plan?.dispose();
          optimizer.dispose();
          for (const parameter of parameters) parameter.dispose();
        }
        return { results, operations: device.tape.numOps };
      }),
    GOLDEN,
  );
  assert.equal(got.operations, 0);
  for (const [index, { losses, kept }] of got.results.entries()) {
    const way = GOLDEN.ways[index];
    const name = `${way.optimizer} ${JSON.stringify(way.options)} ${way.loss}`;
    for (const [step, loss] of losses.entries())
      assert.ok(Math.abs(loss - way.losses[step]) < 1e-5, `${name}: loss ${step} is ${loss}, wanted ${way.losses[step]}`);
    for (const [step, values] of kept.entries()) {
      const off = Math.max(...values.map((value, i) => Math.abs(value - way.parameters[step][i])));
      assert.ok(off < 1e-5, `${name}: after step ${step} parameters are off by ${off}`);
    }
  }
});

test('a plan of a training step creates and writes nothing; checkpoints keep less', LIMIT, async () => {
  const got = await run(() =>
    withDevice({}, async (device) => {
      const x = device.rand([16, 8], { seed: 1 });
      const target = device.rand([16, 8], { seed: 2 });
      const parameters = [1, 2, 3].map((seed) => device.randn([8, 8], { seed }).mul(0.3).clone().requireGrad());
      const layer = (input, w) => input.matmul(w).gelu().mul(2).tanh();
      const forward = () => parameters.reduce(layer, x);
      const optimizer = new rillm.AdamW(parameters, { lr: 0.01 });
      const plan = await device.plan(() => {
        const loss = forward().mseLoss(target);
        loss.backward();
        optimizer.step();
        optimizer.zeroGrad();
        return loss;
      });
      const first = await plan.result.item();
      plan.replay();
      await device.sync();
      const before = { stats: device.stats(), memory: device.memoryStats() };
      for (let i = 0; i < 50; i++) plan.replay();
      device.flush();
      const after = { stats: device.stats(), memory: device.memoryStats() };
      const last = await plan.result.item();
      // A rate of 0: replays change nothing any more.
      optimizer.setLearningRate(0);
      plan.replay();
      const still = await plan.result.item();
      plan.replay();
      const stillAfter = await plan.result.item();
      const left = await failure(() => device.plan(() => forward().mseLoss(target).backward()));
      // The same gradients, of which less is kept.
      const plain = forward();
      const kept = device.tape.savedBytes;
      plain.sum().backward();
      const wanted = await device.readback(...parameters.map((parameter) => parameter.grad));
      for (const parameter of parameters) parameter.zeroGrad();
      const out = parameters.reduce((input, w) => device.checkpoint(() => layer(input, w)), x);
      const keptByCheckpoints = device.tape.savedBytes;
      out.sum().backward();
      const found = await device.readback(...parameters.map((parameter) => parameter.grad));
      const off = Math.max(...found.flatMap((values, at) => [...values].map((value, i) => Math.abs(value - wanted[at][i]))));
      return {
        first,
        last,
        stands: still === stillAfter,
        dispatches: [after.stats.dispatches - before.stats.dispatches, 50 * plan.dispatches],
        made: after.memory.allocated_bytes - before.memory.allocated_bytes,
        uploaded: after.stats.bytes_uploaded - before.stats.bytes_uploaded,
        left: left.message,
        bytes: [kept, keptByCheckpoints, device.tape.checkpointedBytes],
        off,
      };
    }),
  );
  assert.ok(got.last < got.first, `${got.first} ${got.last}`);
  assert.equal(got.stands, true);
  assert.equal(got.dispatches[0], got.dispatches[1]);
  assert.equal(got.made, 0);
  assert.equal(got.uploaded, 0);
  assert.match(got.left, /a gradient that the function made is left/);
  assert.ok(got.bytes[1] < got.bytes[0] && got.bytes[2] > 0, String(got.bytes));
  assert.ok(got.off < 1e-5, String(got.off));
});

const TRANSFORMER = JSON.parse(readFileSync(new URL('../golden/tensor/transformer.json', import.meta.url), 'utf8'));

test('a tiny transformer on characters has the loss curve that it has in PyTorch', LIMIT, async () => {
  const got = await run(
    ({ text, steps, batch, length, width, heads, layers, rate }) =>
      withDevice({}, async (device) => {
        // As in scripts/golden/tiny_transformer.py.
        const hashed = (index, seed) => {
          let h = (Math.imul(index, 0x9e3779b1) + Math.imul(seed, 0x85ebca77)) | 0;
          for (const [shift, factor] of [
            [16, 0x85ebca6b],
            [13, 0xc2b2ae35],
          ]) {
            h = Math.imul(h ^ (h >>> shift), factor);
          }
          return (h ^ (h >>> 16)) >>> 0;
        };
        const weights = (seed, rows, columns) => {
          const scale = rows > 16 ? 2 ** -3 : 2 ** -2;
          const values = Float32Array.from({ length: rows * columns }, (_, i) => ((hashed(i, seed) >>> 16) / 32768 - 1) * scale);
          return device.tensor(values, [rows, columns]).requireGrad();
        };
        const characters = [...new Set(text)].sort();
        const ids = [...text].map((character) => characters.indexOf(character));
        const shapes = [
          [characters.length, width],
          [length, width],
          [width, characters.length],
        ];
        for (let layer = 0; layer < layers; layer++)
          shapes.push([width, 3 * width], [width, width], [width, 4 * width], [4 * width, width]);
        const matrices = shapes.map((shape, seed) => weights(seed, ...shape));
        const scales = Array.from({ length: 2 * layers + 1 }, () => device.ones([width]).requireGrad());
        const [tokens, targets] = [device.zeros([batch, length], 'i32'), device.zeros([batch, length], 'i32')];
        const logits = () => {
          let x = matrices[0].embedding(tokens).add(matrices[1]);
          for (let layer = 0; layer < layers; layer++) {
            const [qkv, out, up, down] = matrices.slice(3 + 4 * layer);
            const parts = x
              .rmsNorm({ weight: scales[2 * layer] })
              .matmul(qkv)
              .chunk(3, -1);
            const [q, k, v] = parts.map((part) => part.reshape([batch, length, heads, width / heads]));
            x = x.add(q.attention(k, v, { causal: true }).reshape([batch, length, width]).matmul(out));
            x = x.add(
              x
                .rmsNorm({ weight: scales[2 * layer + 1] })
                .matmul(up)
                .gelu()
                .matmul(down),
            );
          }
          return x.rmsNorm({ weight: scales.at(-1) }).matmul(matrices[2]);
        };
        const optimizer = new rillm.AdamW([...matrices, ...scales], { lr: rate });
        const fill = (step) => {
          const starts = Array.from({ length: batch }, (_, row) => hashed(step * batch + row, 1000) % (text.length - length - 1));
          const rows = (shift) => Int32Array.from(starts.flatMap((start) => ids.slice(start + shift, start + shift + length)));
          tokens.write(rows(0));
          targets.write(rows(1));
        };
        fill(0);
        const began = performance.now();
        const plan = await device.plan(() => {
          const loss = logits()
            .reshape([batch * length, characters.length])
            .crossEntropy(targets.flatten());
          loss.backward();
          optimizer.step();
          optimizer.zeroGrad();
          return loss;
        });
        const losses = [device.recordReadback(plan.result)];
        for (let step = 1; step < steps; step++) {
          fill(step);
          plan.replay();
          losses.push(device.recordReadback(plan.result));
        }
        await device.sync();
        const values = [];
        for (const recorded of losses) values.push((await recorded.values())[0][0]);
        return { losses: values, milliseconds: performance.now() - began, dispatches: plan.dispatches };
      }),
    TRANSFORMER,
  );
  assert.equal(got.losses.length, 200);
  for (const [step, loss] of got.losses.entries()) {
    const wanted = TRANSFORMER.losses[step];
    assert.ok(Math.abs(loss - wanted) < 0.02 * wanted, `step ${step}: the loss is ${loss}, in PyTorch ${wanted}`);
  }
});

test(
  'a device that is lost in a backward pass, a checkpoint, a plan or its replays: device_lost, and the next device works',
  LIMIT,
  async () => {
    const got = await run(async () => {
      const outcome = (work) => {
        const late = new Promise((resolve) => setTimeout(resolve, 5000, { code: 'hangs' }));
        return Promise.race([failure(work), late]).then(({ code }) => code);
      };
      const training = (device) => {
        const w = device.tensor([1, 2, 3]).requireGrad();
        const optimizer = new rillm.AdamW([w], { lr: 0.1 });
        const lose = () => device.gpuDevice.destroy();
        const step = (within = () => {}) => {
          const loss = w.mul(w).sum();
          within();
          loss.backward();
          optimizer.step();
          optimizer.zeroGrad();
          return loss;
        };
        return { device, w, optimizer, lose, step };
      };
      const ways = {
        'before a pass': async ({ w, lose }) => {
          const loss = w.mul(w).sum();
          lose();
          loss.backward();
          return w.grad.readback();
        },
        'within a pass': async ({ device, w, lose }) => {
          const y = device.tensor([1, 4, 9]);
          device.tape.record('square', [w], y, (gradient) => {
            lose();
            return [gradient.mul(w).mul(2)];
          });
          y.sum().backward();
          return w.grad.readback();
        },
        'in a checkpoint': async ({ device, w, lose }) => {
          let calls = 0;
          const y = device.checkpoint(() => {
            if (calls++ === 1) lose();
            return w.mul(w);
          });
          y.sum().backward();
          return w.grad.readback();
        },
        'before a step of the optimizer': async ({ device, w, optimizer, lose }) => {
          w.mul(w).sum().backward();
          lose();
          optimizer.step();
          return device.sync();
        },
        'while a plan is made': ({ device, step, lose }) => {
          let calls = 0;
          return device.plan(() => step(() => calls++ === 1 && lose()));
        },
        'before replays': async ({ device, step, lose }) => {
          const plan = await device.plan(() => step());
          lose();
          for (let i = 0; i < 3; i++) plan.replay();
          const code = await outcome(() => plan.result.item());
          plan.dispose();
          plan.dispose();
          if (code !== 'device_lost') throw new Error(code);
          return device.sync();
        },
        'in the midst of replays': async ({ device, step, lose }) => {
          const plan = await device.plan(() => step());
          for (let i = 0; i < 3; i++) plan.replay();
          const reading = plan.result.item();
          for (let i = 0; i < 3; i++) plan.replay();
          lose();
          for (let i = 0; i < 3; i++) plan.replay();
          return reading;
        },
        'by destroy() in the midst of replays': async ({ device, step }) => {
          const plan = await device.plan(() => step());
          plan.replay();
          const reading = plan.result.item();
          reading.catch(() => {});
          device.destroy();
          plan.dispose();
          if ((await outcome(async () => plan.replay())) !== 'disposed') throw new Error('a replay of a device that is gone');
          return reading;
        },
      };
      const found = {};
      for (const [name, way] of Object.entries(ways)) {
        const device = await rillm.Device.request();
        const trained = training(device);
        const code = await outcome(() => way(trained));
        const { reason } = await device.lost;
        trained.optimizer.dispose();
        device.destroy();
        found[name] = [code, reason, await outcome(async () => trained.step())];
      }
      const next = await withDevice({}, async (device) => {
        const { w, step } = training(device);
        const plan = await device.plan(() => step());
        plan.replay();
        return [await plan.result.item(), [...(await w.readback())].map((value) => value < 3)];
      });
      return { found, next };
    });
    for (const [name, found] of Object.entries(got.found)) {
      assert.deepEqual(found, [name.startsWith('by destroy') ? 'disposed' : 'device_lost', 'destroyed', 'disposed'], name);
    }
    assert.ok(got.next[0] < 14 && got.next[1].every(Boolean), JSON.stringify(got.next));
  },
);

test('what is wrong is refused by name, before anything is changed', LIMIT, async () => {
  const got = await run(() =>
    withDevice({}, (device) =>
      withDevice({}, async (other) => {
        const { AdamW, Adam, SGD, clipGradNorm, cosineSchedule, linearSchedule, vjp } = rillm;
        const parameter = () => device.tensor([1, 2]).requireGrad();
        const [p, g] = [parameter(), device.ones([2])];
        const codeOf = (work) => failure(work).then(({ code }) => code);
        const unreadable = Object.defineProperty([0, 0], 0, {
          get() {
            throw new Error('mine');
          },
        });
        const own = (backward) => {
          const y = device.ones([2]);
          device.tape.record('mine', [p], y, backward);
          return y.sum();
        };
        const codes = {};
        for (const [code, calls] of Object.entries({
          invalid_request: {
            'a parameter twice': () => new SGD([p, p]),
            'what was computed': () => new SGD([p.mul(2)]),
            'what requires no gradient': () => new SGD([g]),
            'betas that throw': () => new Adam([p], { betas: unreadable }),
            'a parameter that throws': () => new SGD(unreadable),
            'a gradient scaled twice': () => clipGradNorm([p, p], 1),
            'a number of steps': () => linearSchedule({ steps: 2 })(3),
            'inputs that throw': () => device.tape.record('x', unreadable, device.ones([2]), () => []),
            ...Object.fromEntries(
              ['constructor', 'toString', 'dispose', 'readback', 'eval', 'requireGrad', 'made', 'split', 5, Symbol('x'), {}].map((name) => [
                `vjp of ${String(name)}`,
                () => vjp(name, g, p),
              ]),
            ),
          },
          wrong_device: {
            'a parameter elsewhere': () => new AdamW([p, other.ones([2]).requireGrad()]),
            'a norm over devices': () => clipGradNorm([p, other.ones([2]).requireGrad()], 1),
            'a schedule elsewhere': () => new SGD([p], { schedule: () => other.ones([]) }).step(),
          },
          out_of_range: {
            'a rate beyond f32': () => new SGD([p], { lr: 1e39 }),
            'a negative norm': () => clipGradNorm([p], -1),
            'no norm': () => clipGradNorm([p], Number.NaN),
          },
          shape_mismatch: {
            'many gradients': () => own(() => new Array(2 ** 31)).backward(),
            'a rate for each element': () => new SGD([p], { schedule: () => device.ones([2]) }).step(),
          },
        })) {
          for (const [name, call] of Object.entries(calls)) {
            const found = await codeOf(call);
            if (found !== code) codes[name] = [found, code];
          }
        }
        // Steps that fail change nothing.
        const values = async (tensor) => [...(await tensor.readback())];
        const results = [await values(p)];
        const pair = [parameter(), parameter()];
        const sgd = new SGD(pair, { lr: 1 });
        for (const each of pair) each.grad = device.ones([2]);
        pair[1].dispose();
        results.push(await codeOf(() => sgd.step()), await values(pair[0]));
        const tidied = device.tidy(() => new SGD([p], { lr: 1 }));
        p.grad = device.ones([2]);
        results.push((await failure(() => tidied.step())).message, await values(p));
        // A rate of the shape [1] is one number; a norm without a bound changes nothing.
        const scheduled = new SGD([p], { lr: 1, schedule: () => device.ones([1]) });
        results.push(await clipGradNorm([p], Number.POSITIVE_INFINITY).item(), await values(p.grad));
        scheduled.step();
        scheduled.dispose();
        scheduled.dispose();
        results.push(await values(p), await codeOf(() => scheduled.step()), await codeOf(() => scheduled.setLearningRate(1)));
        results.push(await values(linearSchedule({ steps: 2 })(device.tensor([0, 1, 5]))));
        results.push(await values(cosineSchedule({ steps: 1, to: 0.5 })(device.tensor([9]))));
        return { codes, results };
      }),
    ),
  );
  assert.deepEqual(got.codes, {});
  const [before, lost, unchanged, message, same, norm, gradient, changed, ...rest] = got.results;
  assert.deepEqual([before, lost, unchanged, same, gradient, changed], [[1, 2], 'disposed', [1, 2], [1, 2], [1, 1], [0, 1]]);
  assert.match(message, /step: the optimizer was disposed of, or the tidy\(\)/);
  assert.ok(Math.abs(norm - Math.SQRT2) < 1e-6);
  assert.deepEqual(rest, ['disposed', 'disposed', [1, 0.5, 0], [0.5]]);
});
