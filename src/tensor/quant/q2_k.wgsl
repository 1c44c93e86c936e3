#import "int8_weight"

// The two bits of each of a block's weights, in the order of `quarters`, 16 a word.
@group(0) @binding(10) var<storage, read> weight_quants: array<vec2<u32>>;
// For a superblock: the factors of scales and minima in f16, then a byte for each 16 weights, with the scale in the low nibble and
// the minimum in the high one.
@group(0) @binding(11) var<storage, read> weight_scales: array<u32>;

struct Int8Raw { quants: vec2<u32>, factors: u32, scales: u32 }

fn load_int8_raw(index: u32) -> Int8Raw {
    let at = index / 8u * 5u;
    let scales = weight_scales[at + 1u + index % 8u / 2u] >> (index % 2u * 16u);
    return Int8Raw(weight_quants[index], weight_scales[at], scales);
}

fn unpack_int8(raw: Int8Raw) -> Int8Weights {
    let factors = unpack2x16float(raw.factors);
    let scales = (vec2<u32>(raw.scales) >> vec2<u32>(0u, 8u)) & vec2<u32>(15u);
    let minima = (vec2<u32>(raw.scales) >> vec2<u32>(4u, 12u)) & vec2<u32>(15u);
    return Int8Weights(
        quarters(raw.quants.x), quarters(raw.quants.y), factors.x * vec2<f32>(scales), factors.y * vec2<f32>(minima),
    );
}
