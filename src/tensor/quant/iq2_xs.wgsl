#import "int8_weight"
#import "grids"

// For a superblock 16 words of its eight blocks, half a word for each eight weights with the index of the grid in its low nine bits and
// seven signs above; then two words of scales, four bits each.
@group(0) @binding(10) var<storage, read> weight_quants: array<vec2<u32>>;
// The grid, then the f16 factors of superblocks, two a word.
@group(0) @binding(11) var<storage, read> weight_scales: array<u32>;

struct Int8Raw { quants: vec2<u32>, scales: u32, factor: u32 }

fn load_int8_raw(index: u32) -> Int8Raw {
    let at = index / 8u * 9u;
    let i = index % 8u;
    return Int8Raw(weight_quants[at + i], weight_quants[at + 8u][i / 4u] >> (i % 4u * 8u), factor_of(index / 8u));
}

fn numbers_of(quant: u32) -> vec2<u32> {
    return eight_numbers(quant & 511u, eight_signs(quant >> 9u));
}

fn unpack_int8(raw: Int8Raw) -> Int8Weights {
    let scales = vec2<f32>((vec2<u32>(raw.scales) >> vec2<u32>(0u, 4u)) & vec2<u32>(15u));
    return Int8Weights(
        vec4<u32>(numbers_of(raw.quants.x), numbers_of(raw.quants.x >> 16u)),
        vec4<u32>(numbers_of(raw.quants.y), numbers_of(raw.quants.y >> 16u)),
        half_of(raw.factor, 0u) * (scales + 0.5) * 0.25, vec2<f32>(0.0),
    );
}
