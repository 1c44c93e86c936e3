#import "int8_weight"
#import "iq4_values"

// A vector of four 32-bit words holds the 16 bytes of a block as in the file.
@group(0) @binding(10) var<storage, read> weight_quants: array<vec4<u32>>;
// For a superblock, as in the file: the factor in f16 and the high two bits of its eight scales; then their low four.
@group(0) @binding(11) var<storage, read> weight_scales: array<vec2<u32>>;

struct Int8Raw { quants: vec4<u32>, scales: vec2<u32>, block: u32 }

fn load_int8_raw(index: u32) -> Int8Raw {
    return Int8Raw(weight_quants[index], weight_scales[index / 8u], index % 8u);
}

fn unpack_int8(raw: Int8Raw) -> Int8Weights {
    let high = (raw.scales.x >> (16u + raw.block * 2u)) & 3u;
    let low = (raw.scales.y >> (raw.block * 4u)) & 15u;
    let scale = half_of(raw.scales.x, 0u) * (f32(low | (high << 4u)) - 32.0);
    return Int8Weights(
        iq4_values(low_nibbles(raw.quants)), iq4_values(high_nibbles(raw.quants)), vec2<f32>(scale), vec2<f32>(0.0),
    );
}
