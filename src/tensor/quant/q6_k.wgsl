#import "int8_weight"

// For a superblock: the low nibbles of its eight blocks, in the order of Q4_0, a word of four each; then the high two bits, in the
// order of `quarters`, two blocks a word of four.
@group(0) @binding(10) var<storage, read> weight_quants: array<vec4<u32>>;
// For two superblocks: for each its 16 scales, one byte each; then both factors in f16.
@group(0) @binding(11) var<storage, read> weight_scales: array<u32>;

struct Int8Raw { quants: vec4<u32>, high: vec2<u32>, scales: u32, factor: u32 }

fn load_int8_raw(index: u32) -> Int8Raw {
    let super_block = index / 8u;
    let i = index % 8u;
    let quants = super_block * 12u;
    let at = super_block / 2u * 9u;
    let high = weight_quants[quants + 8u + i / 2u];
    return Int8Raw(
        weight_quants[quants + i],
        select(high.xy, high.zw, i % 2u == 1u),
        weight_scales[at + super_block % 2u * 4u + i / 2u] >> (i % 2u * 16u),
        weight_scales[at + 8u] >> (super_block % 2u * 16u),
    );
}

fn unpack_int8(raw: Int8Raw) -> Int8Weights {
    let low = low_nibbles(raw.quants) | (quarters(raw.high.x) << vec4<u32>(4u));
    let high = high_nibbles(raw.quants) | (quarters(raw.high.y) << vec4<u32>(4u));
    let scales = vec2<i32>(vec2<u32>(raw.scales) << vec2<u32>(24u, 16u)) >> vec2<u32>(24u);
    return Int8Weights(
        centred(low, 0x20202020u), centred(high, 0x20202020u), half_of(raw.factor, 0u) * vec2<f32>(scales), vec2<f32>(0.0),
    );
}
