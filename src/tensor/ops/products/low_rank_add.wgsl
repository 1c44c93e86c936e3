// One invocation computes one column of one token. Two ranks of a column are a word of two f16, so that neighbours read side by side.
#import "soa"

struct Params { n: u32, columns: u32, ranks: u32, factor: f32 }

@group(0) @binding(0) var<storage, read> h: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read> words: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 64u + local;
    if i >= params.n {
        return;
    }
    let token = i / params.columns;
    let column = i % params.columns;
    var sum = 0.0;
    for (var at = 1u; at < words[0] * 8u; at += 8u) {
        let of_segment = words[at + 1u];
        // Columns before the first wrap.
        let in_segment = column - words[at];
        if in_segment >= of_segment {
            continue;
        }
        let first_pair = (token * params.ranks + words[at + 2u]) / 2u;
        let pairs = words[at + 3u];
        var word = words[at + 4u] + in_segment;
        for (var pair = 0u; pair < pairs; pair++) {
            sum += dot(unpack2x16float(words[word]), h[first_pair + pair]);
            word += of_segment;
        }
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
