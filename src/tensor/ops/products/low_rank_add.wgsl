// One invocation computes one column of one token. Two ranks of a column are a word of two f16, so that neighbours read side by side.
#import "soa"

struct Params { n: u32, columns: u32, ranks: u32, segments: u32, adapters: u32, factor: f32 }

@group(0) @binding(0) var<storage, read> h: array<f32>;
@group(0) @binding(1) var<storage, read> up: array<u32>;
@group(0) @binding(2) var<storage, read> segments: array<u32>;
@group(0) @binding(3) var<storage, read> scales: array<f32>;
@group(0) @binding(4) var<storage, read> state: array<u32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

// The adapter's scale in the sequence of a token.
fn scale_of(token: u32, adapter: u32) -> f32 {
#ifdef SEQUENCES
    return scales[state[token * 4u + 3u] * params.adapters + adapter];
#else
    return scales[state[3] * params.adapters + adapter];
#endif
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 64u + local;
    if i >= params.n {
        return;
    }
    let token = i / params.columns;
    let column = i % params.columns;
    var sum = 0.0;
    for (var at = 0u; at < params.segments * 8u; at += 8u) {
        let first_column = segments[at];
        let columns = segments[at + 1u];
        if column < first_column || column >= first_column + columns {
            continue;
        }
        let scale = scale_of(token, segments[at + 5u]);
        if scale == 0.0 {
            continue;
        }
        let first_rank = token * params.ranks + segments[at + 2u];
        var word = segments[at + 4u] + column - first_column;
        var product = 0.0;
        for (var pair = 0u; pair < segments[at + 3u]; pair++) {
            let values = unpack2x16float(up[word]);
            product += values.x * h[first_rank + 2u * pair] + values.y * h[first_rank + 2u * pair + 1u];
            word += columns;
        }
        sum += scale * bitcast<f32>(segments[at + 6u]) * product;
    }
    if sum != 0.0 {
#ifdef SOA
        let place = token * params.columns + soa_index(column, params.columns / 32u);
#else
        let place = i;
#endif
        y[place] += params.factor * sum;
    }
}
