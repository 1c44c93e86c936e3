#import "int8_weight"

// A vector of four 32-bit words holds the low nibbles of a block as in the file.
@group(0) @binding(10) var<storage, read> weight_quants: array<vec4<u32>>;
// For two blocks: the fifth bits of each, in the order of `single_bits`, and both scales in f16.
@group(0) @binding(11) var<storage, read> weight_scales: array<u32>;

struct Int8Raw { quants: vec4<u32>, fifths: u32, scales: u32, is_odd: u32 }

fn load_int8_raw(index: u32) -> Int8Raw {
    let at = index / 2u * 3u;
    let is_odd = index & 1u;
    return Int8Raw(weight_quants[index], weight_scales[at + is_odd], weight_scales[at + 2u], is_odd);
}

fn unpack_int8(raw: Int8Raw) -> Int8Weights {
    let low = low_nibbles(raw.quants) | (single_bits(raw.fifths, 0u) << vec4<u32>(4u));
    let high = high_nibbles(raw.quants) | (single_bits(raw.fifths, 4u) << vec4<u32>(4u));
    let scale = half_of(raw.scales, raw.is_odd);
    return Int8Weights(centred(low, 0x10101010u), centred(high, 0x10101010u), vec2<f32>(scale), vec2<f32>(0.0));
}
