// A team of TEAM invocations computes ROWS rows. On GPUs a workgroup merges the splits once for the rows of all its teams.
#import "weight"

struct Params { rows: u32, blocks: u32, head_dim: u32, tile: u32, capacity: u32, first_row: u32, x_blocks: u32 }

@group(0) @binding(2) var<storage, read> state: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "soa"
#import "residual"
#import "dot_rows"
#import "subgroup_sum"
#import "merged"
#ifdef LOW_RANK
#import "low_rank"
#endif

#ifdef MERGED_ONCE
// The output in SoA, merged once for all rows of the workgroup.
var<workgroup> attention: array<vec4<f32>, 8u * BLOCKS>;

fn prepare(local: u32, splits: u32) {
    for (var i = local; i < 8u * BLOCKS; i += WORKGROUP) {
        attention[i] = merged(i, splits);
    }
    workgroupBarrier();
}

fn attention_vector(vector: u32, splits: u32) -> vec4<f32> {
    return attention[vector];
}
#else
fn prepare(local: u32, splits: u32) {}

fn attention_vector(vector: u32, splits: u32) -> vec4<f32> {
    return merged(vector, splits);
}
#endif

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    // A sequence that has stopped: results past its end are never read.
    if state[2] != 0u {
        return;
    }
    let team = (group.y * groups.x + group.x) * (WORKGROUP / TEAM) + local / TEAM;
    let lane = local % TEAM;
    let row = team * ROWS;
    // Rows past the end repeat the last one, so that every invocation takes part in the sum.
    let rows = min(vec4<u32>(row, row + 1u, row + 2u, row + 3u), vec4<u32>(params.rows - 1u));
    let length = min(state[0] + 1u, params.capacity);
    let splits = splits_of(length, SPLITS, params.tile);
    prepare(local, splits);
    var products = vec4<f32>(0.0);
    for (var b = lane; b < params.blocks; b += TEAM) {
        let n = params.blocks;
#ifdef ROLLED
        var words: array<vec4<f32>, 8>;
        for (var i = 0u; i < 8u; i++) {
            words[i] = attention_vector(i * n + b, splits);
        }
        let v = Block(words[0], words[1], words[2], words[3], words[4], words[5], words[6], words[7]);
#else
        let v = Block(
            attention_vector(b, splits), attention_vector(n + b, splits),
            attention_vector(2u * n + b, splits), attention_vector(3u * n + b, splits),
            attention_vector(4u * n + b, splits), attention_vector(5u * n + b, splits),
            attention_vector(6u * n + b, splits), attention_vector(7u * n + b, splits),
        );
#endif
        products += dot_rows(rows * params.blocks, b, v);
    }
#ifdef LOW_RANK
    products += low_rank_rows(rows, lane);
#endif
    products = sum_over_team(products, local, 0u);
    for (var i = lane; i < ROWS; i += TEAM) {
        if row + i < params.rows {
            store_row(row + i, products[i]);
        }
    }
}
