// What neural networks are made of: products, convolutions, pooling, normalisation and attention.

import { EngineError, textOf } from '../../errors.js';
import { NONE } from '../../tensor_wasm.js';
import type { Tensor } from '../tensor.js';
import { count, flag, number, options, pair, whole } from './arguments.js';
import { ShapeOperations, valuesAndIndices } from './shapes.js';

/** How a kernel slides: one number, or two for height and width. */
export interface ConvOptions {
  /** [c_out] */
  bias?: Tensor | undefined;
  /** From one place to the next. Default: 1. */
  stride?: number | readonly [number, number] | undefined;
  /** Zeros before and after the input. Default: 0. */
  padding?: number | readonly [number, number] | undefined;
  /** From one element of the kernel to the next. Default: 1. */
  dilation?: number | readonly [number, number] | undefined;
  /** Channels are convolved in this number of parts. Default: 1. */
  groups?: number | undefined;
}

/** The same for a transposed convolution. */
export interface ConvTransposeOptions extends ConvOptions {
  /** Added to one side of the result. Default: 0. */
  outputPadding?: number | readonly [number, number] | undefined;
}

/** How a window slides: one number, or two for height and width. */
export interface PoolOptions {
  /** From one window to the next. Default: the window's size. */
  stride?: number | readonly [number, number] | undefined;
  /** Rows and columns before and after the input; at most half the window. Default: 0. */
  padding?: number | readonly [number, number] | undefined;
  /** Whether the last windows may reach past the end. Default: false. */
  ceilMode?: boolean | undefined;
}

/** What becomes of the losses of single elements. */
export type Reduction = 'mean' | 'sum' | 'none';

// In the order in which the wasm counts them.
const REDUCTIONS: readonly Reduction[] = ['mean', 'sum', 'none'];

const CONV = ['bias', 'stride', 'padding', 'dilation', 'groups'] as const;

export abstract class LayerOperations extends ShapeOperations {
  /**
   * The matrix product of the last two dimensions; those before them broadcast. One dimension is a row on the left and a column on the right.
   * Computed in f32.
   *
   * @throws EngineError `shape_mismatch`, such as `matmul: inner dimensions differ, [2, 3] and [4, 5]`.
   */
  matmul(y: Tensor): Tensor {
    const other = this.idOf(y, 'matmul: the other operand');
    return this.made((on, id) => on.matmul(id, other));
  }

  /** The sum of products of two tensors of one dimension. */
  dot(y: Tensor): Tensor {
    const other = this.idOf(y, 'dot: the other operand');
    return this.made((on, id) => on.dot(id, other));
  }

  /** x [n, c_in, w], or without n, with a weight [c_out, c_in / groups, kw]: [n, c_out, ow]. */
  conv1d(weight: Tensor, given?: ConvOptions): Tensor {
    return this.#convolution('conv1d', true, false, weight, options(given, 'conv1d', CONV));
  }

  /** x [n, c_in, h, w], or without n, with a weight [c_out, c_in / groups, kh, kw]: [n, c_out, oh, ow]. */
  conv2d(weight: Tensor, given?: ConvOptions): Tensor {
    return this.#convolution('conv2d', false, false, weight, options(given, 'conv2d', CONV));
  }

  /** The transpose of `conv1d` with regard to its input. The weight is [c_in, c_out / groups, kw]. */
  convTranspose1d(weight: Tensor, given?: ConvTransposeOptions): Tensor {
    return this.#convolution('convTranspose1d', true, true, weight, options(given, 'convTranspose1d', [...CONV, 'outputPadding']));
  }

  /** The transpose of `conv2d` with regard to its input. The weight is [c_in, c_out / groups, kh, kw]. */
  convTranspose2d(weight: Tensor, given?: ConvTransposeOptions): Tensor {
    return this.#convolution('convTranspose2d', false, true, weight, options(given, 'convTranspose2d', [...CONV, 'outputPadding']));
  }

  /** The largest element of each window of x [n, c, h, w], or without n, and its index h · w + w in its plane, as i32. */
  maxPool2d(
    kernel: number | readonly [number, number],
    given?: PoolOptions & { dilation?: number | readonly [number, number] | undefined },
  ): { values: Tensor; indices: Tensor } {
    const {
      stride = kernel,
      padding = 0,
      dilation = 1,
      ceilMode = false,
    } = options(given, 'maxPool2d', ['stride', 'padding', 'dilation', 'ceilMode']);
    const how = pairs('maxPool2d', { kernel, stride, padding, dilation });
    return valuesAndIndices(this.madeAll((on, id) => on.maxPool2d(id, how, flag(ceilMode, 'maxPool2d: ceilMode'))));
  }

  /** The mean of each window of x [n, c, h, w], or without n. `countIncludePad` says whether padding counts as elements; it does by default. */
  avgPool2d(kernel: number | readonly [number, number], given?: PoolOptions & { countIncludePad?: boolean | undefined }): Tensor {
    const {
      stride = kernel,
      padding = 0,
      ceilMode = false,
      countIncludePad = true,
    } = options(given, 'avgPool2d', ['stride', 'padding', 'ceilMode', 'countIncludePad']);
    const how = pairs('avgPool2d', { kernel, stride, padding, dilation: 1 });
    return this.made((on, id) =>
      on.avgPool2d(id, how, flag(ceilMode, 'avgPool2d: ceilMode'), flag(countIncludePad, 'avgPool2d: countIncludePad')),
    );
  }

  /** e^x / Σ e^x along a dimension. */
  softmax(dim = -1): Tensor {
    return this.made((on, id) => on.softmax(id, whole(dim, 'softmax: the dimension'), false));
  }

  /** x − log Σ e^x along a dimension. */
  logSoftmax(dim = -1): Tensor {
    return this.made((on, id) => on.softmax(id, whole(dim, 'logSoftmax: the dimension'), true));
  }

  /**
   * Layer normalisation (Ba, Kiros, Hinton 2016) over the last `dims` dimensions, 1 by default: (x − mean) / √(variance + eps) · weight + bias.
   * Weight and bias have the shape of these dimensions.
   */
  layerNorm(given?: {
    dims?: number | undefined;
    weight?: Tensor | undefined;
    bias?: Tensor | undefined;
    eps?: number | undefined;
  }): Tensor {
    const { dims = 1, weight, bias, eps = 1e-5 } = options(given, 'layerNorm', ['dims', 'weight', 'bias', 'eps']);
    const [scale, shift] = [this.idOrNone(weight, 'layerNorm: the weight'), this.idOrNone(bias, 'layerNorm: the bias')];
    return this.made((on, id) => on.norm(false, id, count(dims, 'layerNorm: dims'), scale, shift, number(eps, 'layerNorm: eps')));
  }

  /** Root mean square layer normalisation (Zhang, Sennrich 2019) over the last `dims` dimensions: x / √(mean x² + eps) · weight. */
  rmsNorm(given?: { dims?: number | undefined; weight?: Tensor | undefined; eps?: number | undefined }): Tensor {
    const { dims = 1, weight, eps = 1e-6 } = options(given, 'rmsNorm', ['dims', 'weight', 'eps']);
    const scale = this.idOrNone(weight, 'rmsNorm: the weight');
    return this.made((on, id) => on.norm(true, id, count(dims, 'rmsNorm: dims'), scale, NONE, number(eps, 'rmsNorm: eps')));
  }

  /**
   * Attention: softmax(q · kᵀ · scale) · v, where this tensor is q [batch, q_len, heads, head_dim], and k and v are [batch, kv_len, kv_heads,
   * head_dim]; `heads` is a multiple of `kv_heads`. No score is stored (FlashAttention, Dao et al. 2022), so memory grows with the lengths and not
   * with their product. `causal`: query i sees the keys up to i + kv_len − q_len. `scale` is 1 / √head_dim by default; head_dim is at most 256.
   */
  attention(k: Tensor, v: Tensor, given?: { causal?: boolean | undefined; scale?: number | undefined }): Tensor {
    const { causal = false, scale } = options(given, 'attention', ['causal', 'scale']);
    const [keys, values] = [this.idOf(k, 'attention: k'), this.idOf(v, 'attention: v')];
    if (scale !== undefined) number(scale, 'attention: scale');
    return this.made((on, id) => on.attention(id, keys, values, flag(causal, 'attention: causal'), scale));
  }

  /**
   * The cross entropy −log softmax(x) at the target: x is logits [classes] or [n, classes, …], and the target the classes, i32 or u32, in the shape
   * of x without its dimension of classes. Targets of `ignoreIndex` don't count; `labelSmoothing` spreads this part of each target over all classes
   * (Szegedy et al. 2015). Computed in f32.
   */
  crossEntropy(
    target: Tensor,
    given?: { ignoreIndex?: number | undefined; labelSmoothing?: number | undefined; reduction?: Reduction | undefined },
  ): Tensor {
    const known = ['ignoreIndex', 'labelSmoothing', 'reduction'] as const;
    const { ignoreIndex = -100, labelSmoothing = 0, reduction } = options(given, 'crossEntropy', known);
    const [ignored, kind] = [whole(ignoreIndex, 'crossEntropy: ignoreIndex'), reductionOf(reduction, 'crossEntropy')];
    const [smoothing, classes] = [number(labelSmoothing, 'crossEntropy: labelSmoothing'), this.idOf(target, 'crossEntropy: the target')];
    return this.made((on, id) => on.crossEntropy(id, classes, ignored, smoothing, kind));
  }

  /** The squares of differences from a target of the same shape: their mean, by default. */
  mseLoss(target: Tensor, given?: { reduction?: Reduction | undefined }): Tensor {
    const kind = reductionOf(options(given, 'mseLoss', ['reduction']).reduction, 'mseLoss');
    const other = this.idOf(target, 'mseLoss: the target');
    return this.made((on, id) => on.mseLoss(id, other, kind));
  }

  #convolution(what: string, flat: boolean, transposed: boolean, weight: Tensor, given: ConvTransposeOptions): Tensor {
    const { bias, stride = 1, padding = 0, dilation = 1, outputPadding = 0, groups = 1 } = given;
    const how = new Uint32Array(10);
    setPair(how, 0, stride, what, 'stride');
    setPair(how, 2, padding, what, 'padding');
    setPair(how, 4, dilation, what, 'dilation');
    setPair(how, 6, outputPadding, what, 'outputPadding');
    how[8] = count(groups, `${what}: groups`);
    // Over one dimension nothing slides along the height.
    if (flat) [how[0], how[2], how[4], how[6]] = [1, 0, 1, 0];
    const [kernel, shift] = [this.idOf(weight, `${what}: the weight`), this.idOrNone(bias, `${what}: the bias`)];
    return this.made((on, id) => on.convolution(flat, transposed, id, kernel, shift, how));
  }
}

function reductionOf(value: Reduction = 'mean', what: string): number {
  const kind = REDUCTIONS.indexOf(value);
  if (kind < 0) throw new EngineError('invalid_request', `${what}: reduction is 'mean', 'sum' or 'none', got ${textOf(value)}`);
  return kind;
}

/** The pairs of some options, one after the other. */
function pairs(what: string, values: Record<string, unknown>): Uint32Array {
  const names = Object.keys(values);
  const numbers = new Uint32Array(2 * names.length);
  for (const [index, name] of names.entries()) setPair(numbers, 2 * index, values[name], what, name);
  return numbers;
}

function setPair(numbers: Uint32Array, at: number, value: unknown, what: string, name: string): void {
  [numbers[at], numbers[at + 1]] = pair(value, `${what}: ${name}`);
}
