// One invocation writes one block of 32 numbers of one token's row.
#import "weight"

#ifdef PART
struct Params { tokens: u32, columns: u32, blocks: u32, rows: u32, first_row: u32 }
#else
struct Params { tokens: u32, columns: u32, blocks: u32, rows: u32 }
#endif

@group(0) @binding(0) var<storage, read> tokens: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

#ifdef RAGGED
@group(0) @binding(1) var<storage, read_write> out: array<f32>;

fn store(row: u32, column: u32, value: vec4<f32>) {
    for (var i = 0u; i < 4u; i++) {
        if column + i < params.columns {
            out[row * params.columns + column + i] = value[i];
        }
    }
}
#else
@group(0) @binding(1) var<storage, read_write> out: array<vec4<f32>>;

fn store(row: u32, column: u32, value: vec4<f32>) {
#ifdef SOA
    out[column % 32u / 4u * params.blocks + column / 32u] = value;
#else
    out[(row * params.columns + column) / 4u] = value;
#endif
}
#endif

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 64u + local;
    if i >= params.tokens * params.blocks {
        return;
    }
    let row = i / params.blocks;
    let block = i % params.blocks;
#ifdef PART
    // A token before the first row wraps around to one far beyond the last.
    let token = tokens[row] - params.first_row;
    if token >= params.rows {
        return;
    }
#else
    let token = select(0u, tokens[row], tokens[row] < params.rows);
#endif
    let b = load_block(token * params.blocks + block);
    let c = block * 32u;
    store(row, c, b.v0);
    store(row, c + 4u, b.v1);
    store(row, c + 8u, b.v2);
    store(row, c + 12u, b.v3);
    store(row, c + 16u, b.v4);
    store(row, c + 20u, b.v5);
    store(row, c + 24u, b.v6);
    store(row, c + 28u, b.v7);
}
