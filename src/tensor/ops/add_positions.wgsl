// One invocation adds one block of 32 numbers to one token's row.
#import "weight"

struct Params { tokens: u32, columns: u32, blocks: u32, context: u32 }

@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read> state: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

fn add(row: u32, column: u32, value: vec4<f32>) {
    for (var i = 0u; i < 4u; i++) {
#ifdef RAGGED
        if column + i < params.columns {
            x[row * params.columns + column + i] += value[i];
        }
#else
        x[row * params.columns + column + i] += value[i];
#endif
    }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 64u + local;
    if i >= params.tokens * params.blocks {
        return;
    }
    let row = i / params.blocks;
    let block = i % params.blocks;
    let position = min(state[0] + row, params.context - 1u);
    let b = load_block(position * params.blocks + block);
    let c = block * 32u;
    add(row, c, b.v0);
    add(row, c + 4u, b.v1);
    add(row, c + 8u, b.v2);
    add(row, c + 12u, b.v3);
    add(row, c + 16u, b.v4);
    add(row, c + 20u, b.v5);
    add(row, c + 24u, b.v6);
    add(row, c + 28u, b.v7);
}
