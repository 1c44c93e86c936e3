// One invocation merges the splits of four dimensions of a token's head.
struct Params { words: u32, blocks: u32, heads: u32, head_dim: u32, splits: u32, tile: u32, capacity: u32 }

@group(0) @binding(0) var<storage, read> sums: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> totals: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> state: array<u32>;
#ifdef SINKS
@group(0) @binding(SINKS_BINDING) var<storage, read> sinks: array<f32>;
#endif
@group(0) @binding(OUT_BINDING) var<storage, read_write> out: array<vec4<f32>>;
@group(0) @binding(20) var<uniform> params: Params;

#import "splits"
#import "placement"

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let id = (group.y * groups.x + group.x) * 64u + local;
    if id >= params.words {
        return;
    }
    let words_per_token = params.blocks * 8u;
    let token = id / words_per_token;
    // Within a token, in SoA: word, block.
    let at = id % words_per_token;
    let column = at % params.blocks * 32u + at / params.blocks * 4u;
    let first_total = token * params.splits * params.heads + column / params.head_dim;
    let first_sum = token * params.splits * words_per_token + at;

    // Splits without positions are at the end.
    let length = length_of(token);
    if length == 0u {
        out[id] = vec4<f32>(0.0);
        return;
    }
    let splits = splits_of(length, params.splits, params.tile);
    var largest = -3.0e38;
    for (var s = 0u; s < splits; s++) {
        largest = max(largest, totals[first_total + s * params.heads].x);
    }
    var sum = vec4<f32>(0.0);
    var total = 0.0;
#ifdef SINKS
    // As one more position whose value is zero.
    let sink = sinks[column / params.head_dim];
    largest = max(largest, sink);
    total = exp(sink - largest);
#endif
    for (var s = 0u; s < splits; s++) {
        let split = totals[first_total + s * params.heads];
        let weight = exp(split.x - largest);
        sum += weight * sums[first_sum + s * words_per_token];
        total += weight * split.y;
    }
    out[id] = sum / total;
}
