// 32 numbers of a row. Named fields, never an indexed array: some drivers put indexed private arrays in memory.
struct Block {
    v0: vec4<f32>, v1: vec4<f32>, v2: vec4<f32>, v3: vec4<f32>,
    v4: vec4<f32>, v5: vec4<f32>, v6: vec4<f32>, v7: vec4<f32>,
}

fn dot_blocks(a: Block, b: Block) -> f32 {
    let low = dot(a.v0, b.v0) + dot(a.v1, b.v1) + dot(a.v2, b.v2) + dot(a.v3, b.v3);
    let high = dot(a.v4, b.v4) + dot(a.v5, b.v5) + dot(a.v6, b.v6) + dot(a.v7, b.v7);
    return low + high;
}

fn sum_block(a: Block) -> f32 {
    let sum = a.v0 + a.v1 + a.v2 + a.v3 + a.v4 + a.v5 + a.v6 + a.v7;
    return sum.x + sum.y + sum.z + sum.w;
}
