// Weights as floats for formats with an int8 view (`load_int8_raw`, `unpack_int8`), and functions that such formats share.
//
// A scale times a quant is exact in f32 in all of them, so a weight has the same bits whether or not the compiler fuses the product
// and the offset.
#import "block"
#import "int8_block"

fn signed_values(word: u32) -> vec4<f32> {
    // Each byte is shifted to the top and back, which extends its sign.
    return vec4<f32>(vec4<i32>(vec4<u32>(word) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u));
}

// Four quants as floats. In formats with offsets they are not negative, but for those that say so.
fn quant_values(word: u32) -> vec4<f32> {
#ifdef OFFSETS
#ifdef SIGNED
    return signed_values(word);
#else
    return vec4<f32>((vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u));
#endif
#else
    return signed_values(word);
#endif
}

fn four_weights(word: u32, scale: f32, offset: f32) -> vec4<f32> {
#ifdef OFFSETS
    return quant_values(word) * scale - offset;
#else
    return quant_values(word) * scale;
#endif
}

fn load_block(index: u32) -> Block {
    let w = unpack_int8(load_int8_raw(index));
    return Block(
        four_weights(w.low.x, w.scales.x, w.offsets.x), four_weights(w.low.y, w.scales.x, w.offsets.x),
        four_weights(w.low.z, w.scales.x, w.offsets.x), four_weights(w.low.w, w.scales.x, w.offsets.x),
        four_weights(w.high.x, w.scales.y, w.offsets.y), four_weights(w.high.y, w.scales.y, w.offsets.y),
        four_weights(w.high.z, w.scales.y, w.offsets.y), four_weights(w.high.w, w.scales.y, w.offsets.y),
    );
}

// The product with activations whose sum is `x_sum`: scales and offsets once for 16 or 32 columns.
fn dot_block(index: u32, x: Block, x_sum: f32) -> f32 {
    let w = unpack_int8(load_int8_raw(index));
    let low = dot(quant_values(w.low.x), x.v0) + dot(quant_values(w.low.y), x.v1)
        + dot(quant_values(w.low.z), x.v2) + dot(quant_values(w.low.w), x.v3);
    let high = dot(quant_values(w.high.x), x.v4) + dot(quant_values(w.high.y), x.v5)
        + dot(quant_values(w.high.z), x.v6) + dot(quant_values(w.high.w), x.v7);
#ifdef HALVES
    var product = dot(w.scales, vec2<f32>(low, high));
#ifdef OFFSETS
    let low_sum = dot(x.v0 + x.v1 + x.v2 + x.v3, vec4<f32>(1.0));
    product -= dot(w.offsets, vec2<f32>(low_sum, x_sum - low_sum));
#endif
    return product;
#else
#ifdef OFFSETS
    return w.scales.x * (low + high) - w.offsets.x * x_sum;
#else
    return w.scales.x * (low + high);
#endif
#endif
}

fn low_nibbles(words: vec4<u32>) -> vec4<u32> {
    return words & vec4<u32>(0x0f0f0f0fu);
}

fn high_nibbles(words: vec4<u32>) -> vec4<u32> {
    return (words >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu);
}

// 16 quants of two bits; a byte of the word holds four, those of the first word of the result in its lowest bits.
fn quarters(word: u32) -> vec4<u32> {
    return (vec4<u32>(word) >> vec4<u32>(0u, 2u, 4u, 6u)) & vec4<u32>(0x03030303u);
}

// One bit of 16 quants; a byte of the word holds eight, those of the first word of the result in bit `first`.
fn single_bits(word: u32, first: u32) -> vec4<u32> {
    return (vec4<u32>(word) >> (vec4<u32>(0u, 1u, 2u, 3u) + vec4<u32>(first))) & vec4<u32>(0x01010101u);
}

// Subtracts the bytes of `by` from bytes that are at most 127; the top bits keep borrows from the next byte.
fn centred(words: vec4<u32>, by: u32) -> vec4<u32> {
    let tops = vec4<u32>(0x80808080u);
    return ((words | tops) - vec4<u32>(by)) ^ tops;
}

// The f16 in the lower or the upper half of a word.
fn half_of(word: u32, upper: u32) -> f32 {
    return unpack2x16float(word >> (upper * 16u)).x;
}
