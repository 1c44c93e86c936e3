#import "int8_weight"
#import "grids"

// For a superblock, a word for each of its eight blocks: low bits of four indices of the grid; signs; then two words of two more bits of
// these indices, a byte a block, and two of scales, four bits each.
@group(0) @binding(10) var<storage, read> weight_quants: array<u32>;
// The grid, then the f16 factors of superblocks, two a word.
@group(0) @binding(11) var<storage, read> weight_scales: array<u32>;

struct Int8Raw { quants: u32, signs: u32, high: u32, scales: u32, factor: u32 }

fn load_int8_raw(index: u32) -> Int8Raw {
    let at = index / 8u * 20u;
    let i = index % 8u;
    let shift = i % 4u * 8u;
    return Int8Raw(
        weight_quants[at + i], weight_quants[at + 8u + i],
        weight_quants[at + 16u + i / 4u] >> shift, weight_quants[at + 18u + i / 4u] >> shift, factor_of(index / 8u),
    );
}

fn unpack_int8(raw: Int8Raw) -> Int8Weights {
    let low = (vec4<u32>(raw.quants) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u);
    let high = (vec4<u32>(raw.high) >> vec4<u32>(0u, 2u, 4u, 6u)) & vec4<u32>(3u);
    let indices = low | (high << vec4<u32>(8u));
    let scales = vec2<f32>((vec2<u32>(raw.scales) >> vec2<u32>(0u, 4u)) & vec2<u32>(15u));
    return Int8Weights(
        vec4<u32>(eight_numbers(indices.x, raw.signs), eight_numbers(indices.y, raw.signs >> 8u)),
        vec4<u32>(eight_numbers(indices.z, raw.signs >> 16u), eight_numbers(indices.w, raw.signs >> 24u)),
        half_of(raw.factor, 0u) * (scales + 0.5) * 0.25, vec2<f32>(0.0),
    );
}
