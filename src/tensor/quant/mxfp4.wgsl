#import "int8_weight"
#import "e2m1"

// A vector of four 32-bit words holds the 16 bytes of a block as in the file.
@group(0) @binding(10) var<storage, read> weight_quants: array<vec4<u32>>;
// The exponents of four blocks, a byte each.
@group(0) @binding(11) var<storage, read> weight_scales: array<u32>;

struct Int8Raw { quants: vec4<u32>, exponent: u32 }

fn load_int8_raw(index: u32) -> Int8Raw {
    return Int8Raw(weight_quants[index], weight_scales[index / 4u] >> (index % 4u * 8u));
}

fn unpack_int8(raw: Int8Raw) -> Int8Weights {
    let exponent = raw.exponent & 255u;
    // Half of 2^(exponent - 127), because the values are doubled. Below 2 that is a denormal, which a GPU may flush to zero.
    let scale = bitcast<f32>(select((exponent - 1u) << 23u, 0x00200000u << (exponent & 1u), exponent < 2u));
    return Int8Weights(
        doubled_e2m1(low_nibbles(raw.quants)), doubled_e2m1(high_nibbles(raw.quants)), vec2<f32>(scale), vec2<f32>(0.0),
    );
}
