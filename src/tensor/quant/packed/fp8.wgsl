#import "block"

// Two of these hold the 32 bytes of a block.
@group(0) @binding(10) var<storage, read> weight_quants: array<vec4<u32>>;
// A scale for each group.
@group(0) @binding(11) var<storage, read> weight_scales: array<f32>;

// Four floats of eight bits (E4M3): an exponent of 1 to 15 is put in place; with 0, the mantissa counts eighths of 2^-6. NaN stays NaN.
fn four_e4m3(word: u32) -> vec4<f32> {
    let bytes = vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u);
    let magnitudes = bytes & vec4<u32>(127u);
    let normal = bitcast<vec4<f32>>((magnitudes << vec4<u32>(20u)) + vec4<u32>(0x3c000000u));
    let small = vec4<f32>(magnitudes) * 0.001953125;
    let numbers = select(normal, small, magnitudes < vec4<u32>(8u));
    let nan = select(vec4<u32>(0u), vec4<u32>(0x7fc00000u), magnitudes == vec4<u32>(127u));
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(numbers) | nan | ((bytes & vec4<u32>(128u)) << vec4<u32>(24u)));
}

fn unscaled(index: u32) -> Block {
    let q0 = weight_quants[index * 2u];
    let q1 = weight_quants[index * 2u + 1u];
    return Block(
        four_e4m3(q0.x), four_e4m3(q0.y), four_e4m3(q0.z), four_e4m3(q0.w),
        four_e4m3(q1.x), four_e4m3(q1.y), four_e4m3(q1.z), four_e4m3(q1.w),
    );
}

fn load_block(index: u32) -> Block {
    let b = unscaled(index);
    let d = weight_scales[index / WEIGHT_GROUP];
    return Block(b.v0 * d, b.v1 * d, b.v2 * d, b.v3 * d, b.v4 * d, b.v5 * d, b.v6 * d, b.v7 * d);
}

// The product with activations whose sum is `x_sum`: the scale once for the block.
fn dot_block(index: u32, x: Block, x_sum: f32) -> f32 {
    return weight_scales[index / WEIGHT_GROUP] * dot_blocks(unscaled(index), x);
}
