#import "int8_weight"
#import "grids"

// For a superblock, a word for each of its eight blocks with the low bits of four indices of the grid; then half a word each: three more
// bits of the indices, the scale, and whether numbers are one eighth less or more.
@group(0) @binding(10) var<storage, read> weight_quants: array<u32>;
// The grid, then the f16 factors of superblocks, two a word.
@group(0) @binding(11) var<storage, read> weight_scales: array<u32>;

struct Int8Raw { quants: u32, rest: u32, factor: u32 }

fn load_int8_raw(index: u32) -> Int8Raw {
    let at = index / 8u * 12u;
    let i = index % 8u;
    return Int8Raw(weight_quants[at + i], weight_quants[at + 8u + i / 2u] >> (i % 2u * 16u), factor_of(index / 8u));
}

// The int8 are eight times the numbers.
fn unpack_int8(raw: Int8Raw) -> Int8Weights {
    let low = (vec4<u32>(raw.quants) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u);
    let indices = low | (((vec4<u32>(raw.rest) >> vec4<u32>(0u, 3u, 6u, 9u)) & vec4<u32>(7u)) << vec4<u32>(8u));
    let is_less = (raw.rest >> 15u) & 1u;
    let scale = half_of(raw.factor, 0u) * f32(2u * ((raw.rest >> 12u) & 7u) + 1u) * 0.125;
    return Int8Weights(
        vec4<u32>(shifted_numbers(indices.x, is_less), shifted_numbers(indices.y, is_less)),
        vec4<u32>(shifted_numbers(indices.z, is_less), shifted_numbers(indices.w, is_less)),
        vec2<f32>(scale), vec2<f32>(0.0),
    );
}
