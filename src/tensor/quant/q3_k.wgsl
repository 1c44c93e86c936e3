#import "int8_weight"

// For a superblock: the low two bits of the weights of its eight blocks, in the order of `quarters`, a word of two each; then the
// third bits, in the order of `single_bits`, 32 bits a block.
@group(0) @binding(10) var<storage, read> weight_quants: array<vec2<u32>>;
// For two superblocks: for each the low four bits of its 16 scales and their high two bits; then both factors in f16.
@group(0) @binding(11) var<storage, read> weight_scales: array<u32>;

struct Int8Raw { quants: vec2<u32>, thirds: u32, low: u32, high: u32, factor: u32 }

fn load_int8_raw(index: u32) -> Int8Raw {
    let super_block = index / 8u;
    let i = index % 8u;
    let quants = super_block * 12u;
    let at = super_block / 2u * 7u;
    let scales = at + super_block % 2u * 3u;
    return Int8Raw(
        weight_quants[quants + i],
        weight_quants[quants + 8u + i / 2u][i % 2u],
        weight_scales[scales + i / 4u] >> (i % 4u * 8u),
        weight_scales[scales + 2u] >> (i * 4u),
        weight_scales[at + 6u] >> (super_block % 2u * 16u),
    );
}

fn unpack_int8(raw: Int8Raw) -> Int8Weights {
    let low = quarters(raw.quants.x) | (single_bits(raw.thirds, 0u) << vec4<u32>(2u));
    let high = quarters(raw.quants.y) | (single_bits(raw.thirds, 4u) << vec4<u32>(2u));
    let scales = ((vec2<u32>(raw.low) >> vec2<u32>(0u, 4u)) & vec2<u32>(15u))
        | (((vec2<u32>(raw.high) >> vec2<u32>(0u, 2u)) & vec2<u32>(3u)) << vec2<u32>(4u));
    let factor = half_of(raw.factor, 0u);
    return Int8Weights(
        centred(low, 0x04040404u), centred(high, 0x04040404u), factor * (vec2<f32>(scales) - 32.0), vec2<f32>(0.0),
    );
}
