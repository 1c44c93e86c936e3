// A team of TEAM invocations computes ROWS rows. On GPUs a workgroup merges the splits once for the rows of all its teams.
#import "weight"

struct Params { rows: u32, blocks: u32, head_dim: u32, tile: u32, capacity: u32, first_row: u32, x_blocks: u32 }

@group(0) @binding(0) var<storage, read> sums: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> totals: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> state: array<u32>;
#ifdef SINKS
@group(0) @binding(SINKS_BINDING) var<storage, read> sinks: array<f32>;
#endif
@group(0) @binding(20) var<uniform> params: Params;

#import "soa"
#import "residual"
#import "dot_rows"
#import "subgroup_sum"
#import "splits"

// Four columns of the attention's output, which are those of one head: the average over the splits that have positions.
fn merged(vector: u32, splits: u32) -> vec4<f32> {
    let column = vector % params.blocks * 32u + vector / params.blocks * 4u;
    let head = column / params.head_dim;
    let vectors = params.blocks * 8u;
    var largest = totals[head].x;
    for (var s = 1u; s < SPLITS; s++) {
        if s < splits {
            largest = max(largest, totals[s * HEADS + head].x);
        }
    }
    var sum = vec4<f32>(0.0);
    var total = 0.0;
#ifdef SINKS
    // As one more position whose value is zero.
    largest = max(largest, sinks[head]);
    total = exp(sinks[head] - largest);
#endif
    for (var s = 0u; s < SPLITS; s++) {
        if s < splits {
            let split = totals[s * HEADS + head];
            let weight = exp(split.x - largest);
            total += weight * split.y;
            sum += weight * sums[s * vectors + vector];
        }
    }
    return sum / total;
}

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
    products = sum_over_team(products, local, 0u);
    for (var i = lane; i < ROWS; i += TEAM) {
        if row + i < params.rows {
            store_row(row + i, products[i]);
        }
    }
}
