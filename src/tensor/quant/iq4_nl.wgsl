#import "int8_weight"
#import "iq4_values"

// A vector of four 32-bit words holds the 16 bytes of a block as in the file.
@group(0) @binding(10) var<storage, read> weight_quants: array<vec4<u32>>;
// Two f16 scales a word.
@group(0) @binding(11) var<storage, read> weight_scales: array<u32>;

struct Int8Raw { quants: vec4<u32>, scales: u32, is_odd: u32 }

fn load_int8_raw(index: u32) -> Int8Raw {
    return Int8Raw(weight_quants[index], weight_scales[index / 2u], index & 1u);
}

fn unpack_int8(raw: Int8Raw) -> Int8Weights {
    let scale = half_of(raw.scales, raw.is_odd);
    return Int8Weights(
        iq4_values(low_nibbles(raw.quants)), iq4_values(high_nibbles(raw.quants)), vec2<f32>(scale), vec2<f32>(0.0),
    );
}
