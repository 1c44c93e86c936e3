// A bf16 is the upper half of an f32.
#import "block"

@group(0) @binding(10) var<storage, read> weight_halves: array<vec4<u32>>;

fn four_bf16(a: u32, b: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(vec4<u32>(a << 16u, a & 0xffff0000u, b << 16u, b & 0xffff0000u));
}

fn load_block(index: u32) -> Block {
    let at = index * 4u;
    let q0 = weight_halves[at];
    let q1 = weight_halves[at + 1u];
    let q2 = weight_halves[at + 2u];
    let q3 = weight_halves[at + 3u];
    return Block(
        four_bf16(q0.x, q0.y), four_bf16(q0.z, q0.w), four_bf16(q1.x, q1.y), four_bf16(q1.z, q1.w),
        four_bf16(q2.x, q2.y), four_bf16(q2.z, q2.w), four_bf16(q3.x, q3.y), four_bf16(q3.z, q3.w),
    );
}

// The product with activations whose sum is `x_sum`.
fn dot_block(index: u32, x: Block, x_sum: f32) -> f32 {
    return dot_blocks(load_block(index), x);
}
