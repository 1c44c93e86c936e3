#import "int8_weight"
#import "grids"

// For a superblock, two words for each of its eight blocks with the low bits of eight indices of the grid; two words of their high bits, a
// byte a block; a word of signs for each block; and a word of scales, four bits each.
@group(0) @binding(10) var<storage, read> weight_quants: array<u32>;
// The grid, then the f16 factors of superblocks, two a word.
@group(0) @binding(11) var<storage, read> weight_scales: array<u32>;

struct Int8Raw { quants: vec2<u32>, high: u32, signs: u32, scale: u32, factor: u32 }

fn load_int8_raw(index: u32) -> Int8Raw {
    let at = index / 8u * 27u;
    let i = index % 8u;
    return Int8Raw(
        vec2<u32>(weight_quants[at + i * 2u], weight_quants[at + i * 2u + 1u]),
        weight_quants[at + 16u + i / 4u] >> (i % 4u * 8u), weight_quants[at + 18u + i],
        (weight_quants[at + 26u] >> (i * 4u)) & 15u, factor_of(index / 8u),
    );
}

// The numbers of four indices, with sixteen signs.
fn sixteen_numbers(quants: u32, high: u32, signs: u32) -> vec4<u32> {
    let low = (vec4<u32>(quants) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u);
    let indices = low | (((vec4<u32>(high) >> vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(1u)) << vec4<u32>(8u));
    return vec4<u32>(
        with_signs(weight_scales[indices.x], signs), with_signs(weight_scales[indices.y], signs >> 4u),
        with_signs(weight_scales[indices.z], signs >> 8u), with_signs(weight_scales[indices.w], signs >> 12u),
    );
}

fn unpack_int8(raw: Int8Raw) -> Int8Weights {
    let scale = half_of(raw.factor, 0u) * f32(2u * raw.scale + 1u);
    return Int8Weights(
        sixteen_numbers(raw.quants.x, raw.high, raw.signs), sixteen_numbers(raw.quants.y, raw.high >> 4u, raw.signs >> 16u),
        vec2<f32>(scale), vec2<f32>(0.0),
    );
}
