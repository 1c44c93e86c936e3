#import "int8_weight"
#import "grids"

// For each block four indices of the grid, a byte each, and a word of four times seven signs and the scale.
@group(0) @binding(10) var<storage, read> weight_quants: array<vec2<u32>>;
// The grid, then the f16 factors of superblocks, two a word.
@group(0) @binding(11) var<storage, read> weight_scales: array<u32>;

struct Int8Raw { quants: vec2<u32>, factor: u32 }

fn load_int8_raw(index: u32) -> Int8Raw {
    return Int8Raw(weight_quants[index], factor_of(index / 8u));
}

fn unpack_int8(raw: Int8Raw) -> Int8Weights {
    let indices = (vec4<u32>(raw.quants.x) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u);
    let signs = raw.quants.y;
    let scale = half_of(raw.factor, 0u) * (f32(signs >> 28u) + 0.5) * 0.25;
    return Int8Weights(
        vec4<u32>(eight_numbers(indices.x, eight_signs(signs)), eight_numbers(indices.y, eight_signs(signs >> 7u))),
        vec4<u32>(eight_numbers(indices.z, eight_signs(signs >> 14u)), eight_numbers(indices.w, eight_signs(signs >> 21u))),
        vec2<f32>(scale), vec2<f32>(0.0),
    );
}
