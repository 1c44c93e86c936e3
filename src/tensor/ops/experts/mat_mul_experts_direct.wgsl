// For software adapters, without workgroup memory: each invocation computes two rows of an expert's matrix for four pairs, so that
// each block of weights is unpacked once for four.
#import "weight"

struct Params {
    rows: u32, columns: u32, blocks: u32,
    // Pairs of a token and one of its experts that share a row of x.
    pairs_per_row: u32,
    // The number of the weight's first expert, and the number of its experts.
    first: u32, experts_here: u32,
}

@group(0) @binding(1) var<storage, read> order: array<u32>;
@group(0) @binding(2) var<storage, read> tiles: array<vec4<u32>>;
#ifdef BIAS
// [experts, rows]
@group(0) @binding(BIAS_BINDING) var<storage, read> biases: array<f32>;
#endif
@group(0) @binding(OUT_BINDING) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "activations"

fn store2(place: u32, end: u32, pair: u32, row: u32, values: vec2<f32>) {
    if place < end {
        out[pair * params.rows + row] = values.x;
        if row + 1u < params.rows {
            out[pair * params.rows + row + 1u] = values.y;
        }
    }
}

@compute @workgroup_size(8, 8)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let tile = tiles[group.x];
    // An expert before this part wraps around to one far beyond it.
    let expert = tile.x - params.first;
    let end = tile.y + tile.z;
    let place = tile.y + local.y * 4u;
    let row = (group.y * 8u + local.x) * 2u;
    let last_row = params.rows - 1u;
    if expert >= params.experts_here || place >= end || row > last_row {
        return;
    }
    // Rows and pairs past the end repeat the last one; only `store2` leaves them out.
    let start0 = (expert * params.rows + row) * params.blocks;
    let start1 = (expert * params.rows + min(row + 1u, last_row)) * params.blocks;
    let pair0 = order[place];
    let pair1 = order[min(place + 1u, end - 1u)];
    let pair2 = order[min(place + 2u, end - 1u)];
    let pair3 = order[min(place + 3u, end - 1u)];

#ifdef BIAS
    let bias = vec2<f32>(biases[tile.x * params.rows + row], biases[tile.x * params.rows + min(row + 1u, last_row)]);
#else
    let bias = vec2<f32>(0.0);
#endif
    var sum0 = bias;
    var sum1 = bias;
    var sum2 = bias;
    var sum3 = bias;
    for (var block = 0u; block < params.blocks; block++) {
        let w0 = load_block(start0 + block);
        let w1 = load_block(start1 + block);
        let x0 = load_activations(pair0 / params.pairs_per_row, block);
        sum0 += vec2<f32>(dot_blocks(w0, x0), dot_blocks(w1, x0));
        let x1 = load_activations(pair1 / params.pairs_per_row, block);
        sum1 += vec2<f32>(dot_blocks(w0, x1), dot_blocks(w1, x1));
        let x2 = load_activations(pair2 / params.pairs_per_row, block);
        sum2 += vec2<f32>(dot_blocks(w0, x2), dot_blocks(w1, x2));
        let x3 = load_activations(pair3 / params.pairs_per_row, block);
        sum3 += vec2<f32>(dot_blocks(w0, x3), dot_blocks(w1, x3));
    }
    store2(place, end, pair0, row, sum0);
    store2(place + 1u, end, pair1, row, sum1);
    store2(place + 2u, end, pair2, row, sum2);
    store2(place + 3u, end, pair3, row, sum3);
}
