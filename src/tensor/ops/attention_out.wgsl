// A team of TEAM invocations computes two rows; each merges the splits of the blocks that it takes.
#import "weight"

struct Params { rows: u32, blocks: u32, heads: u32, head_dim: u32, splits: u32, tile: u32, capacity: u32 }

@group(0) @binding(0) var<storage, read> sums: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> totals: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> state: array<u32>;
@group(0) @binding(3) var<storage, read_write> x: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "planar"
#import "dot_rows"
#import "subgroup_sum"
#import "splits"

// Four columns of the attention's output, from those splits that have positions.
fn merged(plane: u32, block: u32, splits: u32) -> vec4<f32> {
    let head = (block * 32u + plane * 4u) / params.head_dim;
    var largest = totals[head].x;
    for (var s = 1u; s < splits; s++) {
        largest = max(largest, totals[s * params.heads + head].x);
    }
    var sum = vec4<f32>(0.0);
    var total = 0.0;
    for (var s = 0u; s < splits; s++) {
        let split = totals[s * params.heads + head];
        let weight = exp(split.x - largest);
        total += weight * split.y;
        sum += weight * sums[(s * 8u + plane) * params.blocks + block];
    }
    return sum / total;
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let team = (group.y * groups.x + group.x) * (WORKGROUP / TEAM) + local / TEAM;
    let lane = local % TEAM;
    let row = team * ROWS;
    // Rows past the end repeat the last one, so that every invocation takes part in the sum.
    let rows = min(vec4<u32>(row, row + 1u, row + 2u, row + 3u), vec4<u32>(params.rows - 1u));
    let length = min(state[0] + 1u, params.capacity);
    let splits = splits_of(length, params.splits, params.tile);
    var products = vec4<f32>(0.0);
    for (var b = lane; b < params.blocks; b += TEAM) {
#ifdef HEADS_OF_WHOLE_BLOCKS
        // One head, so one set of weights, for the whole block.
        let head = b * 32u / params.head_dim;
        var largest = totals[head].x;
        for (var s = 1u; s < splits; s++) {
            largest = max(largest, totals[s * params.heads + head].x);
        }
        var v = Block(
            vec4<f32>(0.0), vec4<f32>(0.0), vec4<f32>(0.0), vec4<f32>(0.0),
            vec4<f32>(0.0), vec4<f32>(0.0), vec4<f32>(0.0), vec4<f32>(0.0),
        );
        var total = 0.0;
        for (var s = 0u; s < splits; s++) {
            let split = totals[s * params.heads + head];
            let weight = exp(split.x - largest);
            total += weight * split.y;
            let at = s * 8u * params.blocks + b;
            v.v0 += weight * sums[at];
            v.v1 += weight * sums[at + params.blocks];
            v.v2 += weight * sums[at + 2u * params.blocks];
            v.v3 += weight * sums[at + 3u * params.blocks];
            v.v4 += weight * sums[at + 4u * params.blocks];
            v.v5 += weight * sums[at + 5u * params.blocks];
            v.v6 += weight * sums[at + 6u * params.blocks];
            v.v7 += weight * sums[at + 7u * params.blocks];
        }
        products += dot_rows(rows * params.blocks, b, v) / total;
#else
        let v = Block(
            merged(0u, b, splits), merged(1u, b, splits), merged(2u, b, splits), merged(3u, b, splits),
            merged(4u, b, splits), merged(5u, b, splits), merged(6u, b, splits), merged(7u, b, splits),
        );
        products += dot_rows(rows * params.blocks, b, v);
#endif
    }
    products = sum_over_team(products, local, 0u);
    for (var i = lane; i < ROWS; i += TEAM) {
        if row + i < params.rows {
            let at = planar_index(row + i, params.rows / 32u);
            x[at] += products[i];
        }
    }
}
