// One invocation adds one block of 32 numbers to one token's row.
#import "weight"

struct Params {
    tokens: u32, columns: u32, blocks: u32,
    // Rows of the whole matrix, and of this part.
    rows: u32, first_row: u32, rows_here: u32,
    capacity: u32,
}

@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read> state: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "placement"

fn add(row: u32, column: u32, value: vec4<f32>) {
#ifdef SOA
    let at = row * params.columns + (column % 32u / 4u * params.blocks + column / 32u) * 4u;
#else
    let at = row * params.columns + column;
#endif
    for (var i = 0u; i < 4u; i++) {
#ifdef RAGGED
        if column + i < params.columns {
            x[at + i] += value[i];
        }
#else
        x[at + i] += value[i];
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
    // A position before the part wraps around to one far beyond it.
    let here = min(position_of(row), params.rows - 1u) - params.first_row;
    if here >= params.rows_here {
        return;
    }
    let b = load_block(here * params.blocks + block);
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
