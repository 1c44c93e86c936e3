// A team of TEAM invocations computes two rows; each merges the splits of the blocks that it takes.
#import "weight"

struct Params { rows: u32, blocks: u32, head_dim: u32, tile: u32, capacity: u32 }

@group(0) @binding(0) var<storage, read> sums: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> totals: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> state: array<u32>;
@group(0) @binding(3) var<storage, read_write> x: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "planar"
#import "dot_rows"
#import "subgroup_sum"
#import "splits"

#ifdef ONE_SPLIT
// What a split's sums count in the average of a head.
fn share_of(split: u32, head: u32) -> f32 {
    return 1.0 / totals[head].y;
}

fn prepare(local: u32, splits: u32) {}
#else
// [split][head], zero for splits without positions.
var<workgroup> split_shares: array<f32, SPLITS * HEADS>;

fn share_of(split: u32, head: u32) -> f32 {
    return split_shares[split * HEADS + head];
}

fn prepare(local: u32, splits: u32) {
    for (var head = local; head < HEADS; head += WORKGROUP) {
        var largest = -3.0e38;
        for (var s = 0u; s < SPLITS; s++) {
            largest = select(largest, max(largest, totals[s * HEADS + head].x), s < splits);
        }
        var total = 0.0;
        for (var s = 0u; s < SPLITS; s++) {
            let split = totals[s * HEADS + head];
            let weight = select(0.0, exp(split.x - largest), s < splits);
            total += weight * split.y;
            split_shares[s * HEADS + head] = weight;
        }
        for (var s = 0u; s < SPLITS; s++) {
            split_shares[s * HEADS + head] /= total;
        }
    }
    workgroupBarrier();
}
#endif

// Four columns of a split's part of the average; a head may end within a block.
fn part(split: u32, plane: u32, block: u32) -> vec4<f32> {
    let head = (block * 32u + plane * 4u) / params.head_dim;
    return share_of(split, head) * sums[(split * 8u + plane) * params.blocks + block];
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
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
        var v = Block(
            part(0u, 0u, b), part(0u, 1u, b), part(0u, 2u, b), part(0u, 3u, b),
            part(0u, 4u, b), part(0u, 5u, b), part(0u, 6u, b), part(0u, 7u, b),
        );
        for (var s = 1u; s < splits; s++) {
            v.v0 += part(s, 0u, b);
            v.v1 += part(s, 1u, b);
            v.v2 += part(s, 2u, b);
            v.v3 += part(s, 3u, b);
            v.v4 += part(s, 4u, b);
            v.v5 += part(s, 5u, b);
            v.v6 += part(s, 6u, b);
            v.v7 += part(s, 7u, b);
        }
        products += dot_rows(rows * params.blocks, b, v);
    }
    products = sum_over_team(products, local, 0u);
    for (var i = lane; i < ROWS; i += TEAM) {
        if row + i < params.rows {
            let at = planar_index(row + i, params.rows / 32u);
            x[at] += products[i];
        }
    }
}
