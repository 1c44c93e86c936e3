// Floats of 16 bits, which JavaScript has no arrays for everywhere.

const float = new Float32Array(1);
const bits = new Uint32Array(float.buffer);

/** The bits of the nearest f16 (IEEE 754), ties to even. From the double itself: by way of f32 it would be rounded twice. @internal */
export function halfBits(value: number): number {
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const magnitude = Math.abs(value);
  if (Number.isNaN(value)) return 0x7e00;
  if (magnitude >= 65520) return sign | 0x7c00;
  // The distance of neighbours: 2^-24 among the smallest, 2^-10 of the power of two below otherwise.
  let exponent = Math.max(Math.floor(Math.log2(magnitude)), -14);
  // The logarithm may be rounded to that of the next power of two.
  if (2 ** exponent > magnitude && exponent > -14) exponent -= 1;
  const steps = toEven(magnitude * 2 ** (10 - exponent));
  // A sum: what is rounded up to the next power of two carries into the exponent.
  return sign | (steps + (exponent + 14) * 0x400);
}

/** @internal */
export function halfValue(half: number): number {
  const exponent = (half >> 10) & 0x1f;
  const fraction = half & 0x3ff;
  const sign = half & 0x8000 ? -1 : 1;
  if (exponent === 0x1f) return fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25));
}

/** The bits of the nearest bfloat16, ties to even. @internal */
export function bfloatBits(value: number): number {
  float[0] = value;
  if (Number.isNaN(value)) return 0x7fc0;
  return ((bits[0]! + 0x7fff + ((bits[0]! >>> 16) & 1)) >>> 16) & 0xffff;
}

/** @internal */
export function bfloatValue(half: number): number {
  bits[0] = half << 16;
  return float[0]!;
}

function toEven(value: number): number {
  const floor = Math.floor(value);
  const rest = value - floor;
  return rest > 0.5 || (rest === 0.5 && floor % 2 === 1) ? floor + 1 : floor;
}
