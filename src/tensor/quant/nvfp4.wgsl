#import "int8_weight"
#import "e2m1"

// For two blocks a word of four scales and eight words as in the file: of each two, the low nibbles are eight weights, then the high ones.
@group(0) @binding(10) var<storage, read> weight_quants: array<u32>;

struct Int8Raw { quants: vec4<u32>, scales: u32 }

fn load_int8_raw(index: u32) -> Int8Raw {
    let at = index / 2u * 9u;
    let first = at + 1u + index % 2u * 4u;
    let quants = vec4<u32>(weight_quants[first], weight_quants[first + 1u], weight_quants[first + 2u], weight_quants[first + 3u]);
    return Int8Raw(quants, weight_quants[at] >> (index % 2u * 16u));
}

// Half of a float of eight bits (E4M3, whose sign is not read), because the values are doubled. NaN counts as zero.
fn half_of_e4m3(bits: u32) -> f32 {
    let normal = bitcast<f32>(((bits & 127u) << 20u) + (119u << 23u));
    let number = select(normal, f32(bits & 7u) * 0.0009765625, (bits & 120u) == 0u);
    return select(number, 0.0, bits == 127u);
}

fn unpack_int8(raw: Int8Raw) -> Int8Weights {
    let low = low_nibbles(raw.quants);
    let high = high_nibbles(raw.quants);
    return Int8Weights(
        doubled_e2m1(vec4<u32>(low.xy, high.xy)), doubled_e2m1(vec4<u32>(low.zw, high.zw)),
        vec2<f32>(half_of_e4m3(raw.scales & 255u), half_of_e4m3((raw.scales >> 8u) & 255u)), vec2<f32>(0.0),
    );
}
