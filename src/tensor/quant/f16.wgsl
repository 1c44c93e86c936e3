// Halves are unpacked by `unpack2x16float`, which needs no shader-f16.
#import "block"

@group(0) @binding(10) var<storage, read> weight_halves: array<vec4<u32>>;

fn load_block(index: u32) -> Block {
    let at = index * 4u;
    let q0 = weight_halves[at];
    let q1 = weight_halves[at + 1u];
    let q2 = weight_halves[at + 2u];
    let q3 = weight_halves[at + 3u];
    return Block(
        vec4<f32>(unpack2x16float(q0.x), unpack2x16float(q0.y)), vec4<f32>(unpack2x16float(q0.z), unpack2x16float(q0.w)),
        vec4<f32>(unpack2x16float(q1.x), unpack2x16float(q1.y)), vec4<f32>(unpack2x16float(q1.z), unpack2x16float(q1.w)),
        vec4<f32>(unpack2x16float(q2.x), unpack2x16float(q2.y)), vec4<f32>(unpack2x16float(q2.z), unpack2x16float(q2.w)),
        vec4<f32>(unpack2x16float(q3.x), unpack2x16float(q3.y)), vec4<f32>(unpack2x16float(q3.z), unpack2x16float(q3.w)),
    );
}

// The product with activations whose sum is `x_sum`.
fn dot_block(index: u32, x: Block, x_sum: f32) -> f32 {
    return dot_blocks(load_block(index), x);
}
