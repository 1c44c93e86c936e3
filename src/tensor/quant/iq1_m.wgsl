#import "int8_weight"
#import "grids"

// For a superblock, a word for each of its eight blocks with the low bits of four indices of the grid; half a word each with three more bits
// of an index and whether its numbers are one eighth less or more, four times; then two words of four times four scales of three
// bits and four bits of the f16 factor.
@group(0) @binding(10) var<storage, read> weight_quants: array<u32>;
// The grid.
@group(0) @binding(11) var<storage, read> weight_scales: array<u32>;

struct Int8Raw { quants: u32, rest: u32, scales: vec2<u32>, block: u32 }

fn load_int8_raw(index: u32) -> Int8Raw {
    let at = index / 8u * 14u;
    let i = index % 8u;
    return Int8Raw(
        weight_quants[at + i], weight_quants[at + 8u + i / 2u] >> (i % 2u * 16u),
        vec2<u32>(weight_quants[at + 12u], weight_quants[at + 13u]), i,
    );
}

// The int8 are eight times the numbers.
fn unpack_int8(raw: Int8Raw) -> Int8Weights {
    let low = (vec4<u32>(raw.quants) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u);
    let rest = vec4<u32>(raw.rest) >> vec4<u32>(0u, 4u, 8u, 12u);
    let indices = low | ((rest & vec4<u32>(7u)) << vec4<u32>(8u));
    let is_less = (rest >> vec4<u32>(3u)) & vec4<u32>(1u);
    let tops = (raw.scales >> vec2<u32>(12u)) & vec2<u32>(15u);
    let bottoms = (raw.scales >> vec2<u32>(24u)) & vec2<u32>(240u);
    let factor = half_of(tops.x | bottoms.x | ((tops.y | bottoms.y) << 8u), 0u);
    let scales = raw.scales[raw.block / 4u] >> (raw.block / 2u % 2u * 16u + raw.block % 2u * 6u);
    let odd = vec2<f32>(((vec2<u32>(scales) >> vec2<u32>(0u, 3u)) & vec2<u32>(7u)) * 2u + 1u);
    return Int8Weights(
        vec4<u32>(shifted_numbers(indices.x, is_less.x), shifted_numbers(indices.y, is_less.y)),
        vec4<u32>(shifted_numbers(indices.z, is_less.z), shifted_numbers(indices.w, is_less.w)),
        factor * odd * 0.125, vec2<f32>(0.0),
    );
}
