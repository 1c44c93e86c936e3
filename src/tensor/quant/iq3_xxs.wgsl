#import "int8_weight"
#import "grids"

// For a superblock, two words for each of its eight blocks with eight indices of the grid; then one each of four times seven signs and the
// scale.
@group(0) @binding(10) var<storage, read> weight_quants: array<vec2<u32>>;
// The grid, then the f16 factors of superblocks, two a word.
@group(0) @binding(11) var<storage, read> weight_scales: array<u32>;

struct Int8Raw { quants: vec2<u32>, signs: u32, factor: u32 }

fn load_int8_raw(index: u32) -> Int8Raw {
    let at = index / 8u * 12u;
    let i = index % 8u;
    return Int8Raw(weight_quants[at + i], weight_quants[at + 8u + i / 2u][i % 2u], factor_of(index / 8u));
}

// The numbers of four indices, with sixteen signs.
fn sixteen_numbers(quants: u32, signs: u32) -> vec4<u32> {
    return vec4<u32>(
        with_signs(weight_scales[quants & 255u], signs), with_signs(weight_scales[(quants >> 8u) & 255u], signs >> 4u),
        with_signs(weight_scales[(quants >> 16u) & 255u], signs >> 8u), with_signs(weight_scales[quants >> 24u], signs >> 12u),
    );
}

fn unpack_int8(raw: Int8Raw) -> Int8Weights {
    let scale = half_of(raw.factor, 0u) * (f32(raw.signs >> 28u) + 0.5) * 0.5;
    return Int8Weights(
        sixteen_numbers(raw.quants.x, eight_signs(raw.signs) | (eight_signs(raw.signs >> 7u) << 8u)),
        sixteen_numbers(raw.quants.y, eight_signs(raw.signs >> 14u) | (eight_signs(raw.signs >> 21u) << 8u)),
        vec2<f32>(scale), vec2<f32>(0.0),
    );
}
