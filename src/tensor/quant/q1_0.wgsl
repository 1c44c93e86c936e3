#import "int8_weight"

// A bit for each of a block's weights.
@group(0) @binding(10) var<storage, read> weight_quants: array<u32>;
// The f16 scales of four blocks each, two a word.
@group(0) @binding(11) var<storage, read> weight_scales: array<u32>;

struct Int8Raw { quants: u32, factor: u32 }

fn load_int8_raw(index: u32) -> Int8Raw {
    return Int8Raw(weight_quants[index], weight_scales[index / 8u] >> (index / 4u % 2u * 16u));
}

// 1 or -1 in a byte for each of four bits.
fn signs_of(bits: vec4<u32>) -> vec4<u32> {
    let ones = ((bits & vec4<u32>(15u)) * 0x00204081u) & vec4<u32>(0x01010101u);
    return ~(ones * 254u);
}

fn unpack_int8(raw: Int8Raw) -> Int8Weights {
    let bits = vec4<u32>(raw.quants);
    return Int8Weights(
        signs_of(bits >> vec4<u32>(0u, 4u, 8u, 12u)), signs_of(bits >> vec4<u32>(16u, 20u, 24u, 28u)),
        vec2<f32>(half_of(raw.factor, 0u)), vec2<f32>(0.0),
    );
}
