// How smooth a page stays while an engine loads and works: a canvas draws with WebGL in every frame and reads one pixel back, so that a frame
// ends when the GPU has drawn it. Knows the package's public face only.

import { complete, median, promptOf } from './measure.js';

/** What is measured by itself of a load. */
const LOADING = 'loading';
const TUNING = 'tuning';

const SHADERS = [
  ['VERTEX_SHADER', 'attribute vec2 at; void main() { gl_Position = vec4(at, 0.0, 1.0); }'],
  [
    'FRAGMENT_SHADER',
    'precision mediump float; uniform float time; void main() { gl_FragColor = vec4(fract(gl_FragCoord.xy * 0.01 + time), 0.5, 1.0); }',
  ],
];

/** Draws in every frame until `stop()`, and keeps when each began. */
export class Drawing {
  #canvas = document.createElement('canvas');
  #gl;
  #time;
  #pixel = new Uint8Array(4);
  #starts = [];
  #isStopped = false;

  constructor() {
    Object.assign(this.#canvas, { width: 512, height: 512 });
    document.body.append(this.#canvas);
    const gl = this.#canvas.getContext('webgl');
    if (gl === null) throw new Error('this browser gives no WebGL context, so frames can’t be measured');
    const program = gl.createProgram();
    for (const [type, source] of SHADERS) {
      const shader = gl.createShader(gl[type]);
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS))
      throw new Error(`the shaders of the page don’t link: ${gl.getProgramInfoLog(program)}`);
    gl.useProgram(program);
    gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
    gl.bufferData(gl.ARRAY_BUFFER, new Float32Array([-1, -1, 3, -1, -1, 3]), gl.STATIC_DRAW);
    const at = gl.getAttribLocation(program, 'at');
    gl.enableVertexAttribArray(at);
    gl.vertexAttribPointer(at, 2, gl.FLOAT, false, 0, 0);
    this.#gl = gl;
    this.#time = gl.getUniformLocation(program, 'time');
    requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    if (this.#isStopped) return;
    const gl = this.#gl;
    const now = performance.now();
    this.#starts.push(now);
    gl.uniform1f(this.#time, (now / 1000) % 1);
    gl.drawArrays(gl.TRIANGLES, 0, 3);
    // Waits until the GPU has drawn.
    gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, this.#pixel);
    requestAnimationFrame(() => this.#draw());
  }

  /** What draws. If it is software, frames wait for the processor and not for the GPU. */
  renderer() {
    const named = this.#gl.getExtension('WEBGL_debug_renderer_info');
    return this.#gl.getParameter(named ? named.UNMASKED_RENDERER_WEBGL : this.#gl.RENDERER);
  }

  /** Milliseconds between frames, of those that ended between two times. */
  between(begin, end) {
    const gaps = [];
    for (let i = 1; i < this.#starts.length; i++) {
      if (this.#starts[i] > begin && this.#starts[i] <= end) gaps.push(this.#starts[i] - this.#starts[i - 1]);
    }
    return gaps;
  }

  /** A frame is being drawn when something ends; it counts. */
  settled() {
    return new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
  }

  stop() {
    this.#isStopped = true;
    this.#gl.getExtension('WEBGL_lose_context')?.loseContext();
    this.#canvas.remove();
  }
}

/** The value below which a part of them lies. */
export function percentile(values, part) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(part * sorted.length) - 1)];
}

function row(smoothness, phase, gaps, more = {}) {
  if (gaps.length === 0) return { smoothness, phase, frames: 0, ...more };
  const figures = { median_ms: median(gaps), p99_ms: percentile(gaps, 0.99), longest_ms: Math.max(...gaps) };
  return { smoothness, phase, frames: gaps.length, ...figures, ...more };
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/**
 * Frames of a page: idle, then for both kinds of smoothness while the model is loaded and tuned, decodes and takes prompts in. Each phase
 * takes `seconds`, the load as long as it takes, `repetitions` times. Kernels are compiled by a load before the first one, whose frames are
 * told as `first load`. `onRow` is called with each row. Tunings that the browser kept are forgotten.
 */
export async function measureFrames(
  Engine,
  source,
  { promptTokens = 4000, newTokens = 256, seconds = 3, repetitions = 2, smoothness = ['throughput', 'frames'], onRow, ...load } = {},
) {
  const drawing = new Drawing();
  const rows = [];
  const tell = (...figures) => {
    const made = row(...figures);
    rows.push(made);
    onRow?.(made);
  };
  let about;
  try {
    await drawing.settled();
    const begin = performance.now();
    await pause(1000 * seconds);
    tell(null, 'idle', drawing.between(begin, performance.now()));
    const first = await loaded(Engine, source, { ...load, smoothness: smoothness.at(-1) }, drawing);
    tell(smoothness.at(-1), 'first load', [...first[LOADING], ...first[TUNING]], { ms: first.ms });
    const prompts = await promptsOf(first.engine, promptTokens);
    await first.engine.dispose();
    for (const kind of smoothness) {
      const gaps = { [LOADING]: [], [TUNING]: [] };
      const times = [];
      for (let run = 0; run < repetitions; run++) {
        const { engine, ms, ...of } = await loaded(Engine, source, { ...load, smoothness: kind }, drawing);
        times.push(ms);
        gaps[LOADING].push(...of[LOADING]);
        gaps[TUNING].push(...of[TUNING]);
        if (run < repetitions - 1) {
          await engine.dispose();
          continue;
        }
        const { adapter, layers, autotune } = engine.info;
        about = { adapter, layers, autotune: autotune.state };
        tell(kind, LOADING, gaps[LOADING], { ms: median(times) });
        tell(kind, TUNING, gaps[TUNING]);
        const short = await promptOf(engine, 16, 0);
        const decode = () => complete(engine, short, newTokens).then(({ timings }) => timings.tokens_per_s);
        const decoded = await during(drawing, seconds, decode);
        tell(kind, 'decoding', decoded.gaps, { tokens_per_s: decoded.speed });
        let next = 0;
        const prefill = () => complete(engine, prompts[next++ % prompts.length], 1).then(({ timings }) => timings.prompt_tokens_per_s);
        const taken = await during(drawing, seconds, prefill);
        tell(kind, `prompts of ${prompts.tokens}`, taken.gaps, { tokens_per_s: taken.speed });
        await engine.dispose();
      }
    }
    return { ...about, webgl: drawing.renderer(), settings: { promptTokens: prompts.tokens, newTokens, seconds, repetitions }, rows };
  } finally {
    drawing.stop();
  }
}

/** Loads the engine, and the frames meanwhile: those until the last byte, and those after it, when kernels are tuned. */
async function loaded(Engine, source, options, drawing) {
  await globalThis.caches?.delete('rillm-tunings');
  await drawing.settled();
  const begin = performance.now();
  let isRead;
  const onProgress = ({ phase, loaded, total }) => {
    if (phase !== 'header' && loaded === total) isRead ??= performance.now();
  };
  const engine = await Engine.load(source, { cache: 'none', ...options, onProgress });
  const end = performance.now();
  await drawing.settled();
  const middle = isRead ?? end;
  return { engine, ms: end - begin, [LOADING]: drawing.between(begin, middle), [TUNING]: drawing.between(middle, performance.now()) };
}

/** Texts of about so many tokens, no two of which begin alike. */
async function promptsOf(engine, wanted) {
  const tokens = Math.min(wanted, engine.info.context_length - 16);
  const text = await promptOf(engine, tokens - 8, 0);
  const prompts = Array.from({ length: 64 }, (_, index) => `${index + 1} ${text}`);
  return Object.assign(prompts, { tokens });
}

/** Does something again and again, and the frames meanwhile; the first time is not counted. */
async function during(drawing, seconds, work) {
  await work();
  await drawing.settled();
  const begin = performance.now();
  const speeds = [];
  while (performance.now() - begin < 1000 * seconds) speeds.push(await work());
  const end = performance.now();
  await drawing.settled();
  return { gaps: drawing.between(begin, Math.max(end, performance.now())), speed: median(speeds) };
}

/** The rows as a table of words. */
export function framesTable({ rows, webgl }) {
  const number = (value) => (value === undefined ? '' : value.toFixed(1));
  return {
    title: `Frames of a page, drawn by ${webgl}`,
    columns: ['', 'frames', 'median ms', '99th percentile', 'longest', 'tokens/s', 'ms'],
    rows: rows.map((row) => [
      row.smoothness === null ? row.phase : `${row.phase}, ${row.smoothness}`,
      String(row.frames),
      number(row.median_ms),
      number(row.p99_ms),
      number(row.longest_ms),
      number(row.tokens_per_s),
      number(row.ms),
    ]),
  };
}
