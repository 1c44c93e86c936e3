// LANES invocations together compute four rows of one expert for one token; each takes every LANES-th block of 32 columns.
#import "weight"

struct Params {
    rows: u32, columns: u32, blocks: u32,
    // Pairs of a token and one of its experts, and the number of pairs that share a row of x.
    items: u32, items_per_row: u32,
    // Experts of the whole stack; the number of the weight's first expert, and the number of its experts.
    experts: u32, first: u32, experts_here: u32,
}

@group(0) @binding(1) var<storage, read> ids: array<u32>;
#ifdef BIAS
// [experts, rows]
@group(0) @binding(BIAS_BINDING) var<storage, read> biases: array<f32>;
#endif
@group(0) @binding(OUT_BINDING) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "activations"
#import "subgroup_sum"

fn load_x(row: u32, block: u32) -> Block {
#ifdef SOA
    let n = params.blocks;
    let at = row * 8u * n + block;
    return Block(
        activations[at], activations[at + n], activations[at + 2u * n], activations[at + 3u * n],
        activations[at + 4u * n], activations[at + 5u * n], activations[at + 6u * n], activations[at + 7u * n],
    );
#else
    return load_activations(row, block);
#endif
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let id = group.z * groups.y + group.y;
    // The grid can be a little larger than the items; such a workgroup repeats the last one and writes nothing.
    let item = min(id, params.items - 1u);
    let x_row = item / params.items_per_row;
    // NaN logits give no id.
    let expert = min(ids[item], params.experts - 1u);
#ifdef PART
    // An expert of another part has no blocks, so that every invocation takes part in the sum. One before the part wraps around to
    // one far beyond it.
    let is_here = expert - params.first < params.experts_here;
    let first_row = select(0u, expert - params.first, is_here) * params.rows;
    let blocks = select(0u, params.blocks, is_here);
    let is_wanted = is_here && id < params.items;
#else
    let first_row = expert * params.rows;
    let blocks = params.blocks;
    let is_wanted = id < params.items;
#endif
    let team = group.x * (WORKGROUP / LANES) + local / LANES;
    let lane = local % LANES;
    let row = team * 4u;
    // Rows past the end repeat the last one, so that every invocation takes part in the sum.
    let last = params.rows - 1u;
    let start0 = (first_row + min(row, last)) * params.blocks;
    let start1 = (first_row + min(row + 1u, last)) * params.blocks;
    let start2 = (first_row + min(row + 2u, last)) * params.blocks;
    let start3 = (first_row + min(row + 3u, last)) * params.blocks;

    var sum = vec4<f32>(0.0);
    for (var block = lane; block < blocks; block += LANES) {
        let x = load_x(x_row, block);
        sum += vec4<f32>(
            dot_blocks(load_block(start0 + block), x),
            dot_blocks(load_block(start1 + block), x),
            dot_blocks(load_block(start2 + block), x),
            dot_blocks(load_block(start3 + block), x),
        );
    }
    sum = sum_over_lanes(sum, local);
    if is_wanted {
        for (var i = lane; i < 4u; i += LANES) {
            if row + i < params.rows {
#ifdef BIAS
                out[item * params.rows + row + i] = sum[i] + biases[expert * params.rows + row + i];
#else
                out[item * params.rows + row + i] = sum[i];
#endif
            }
        }
    }
}
