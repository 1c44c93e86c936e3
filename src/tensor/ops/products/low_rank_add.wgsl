// One invocation computes one column of TOKENS tokens. Two ranks of a column are a word of two f16, so that neighbours read side by side.
#import "soa"

struct Params { n: u32, tokens: u32, columns: u32, ranks: u32, last_pair: u32, factor: f32 }

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
    let first_token = i / params.columns * TOKENS;
    let column = i % params.columns;
    var sums: array<f32, TOKENS>;
    for (var at = 1u; at < words[0] * 5u; at += 5u) {
        let of_segment = words[at + 1u];
        // Columns before the first wrap.
        let in_segment = column - words[at];
        if in_segment >= of_segment {
            continue;
        }
        let first_pair = (first_token * params.ranks + words[at + 2u]) / 2u;
        let pairs = words[at + 3u];
        var word = words[at + 4u] + in_segment;
        for (var pair = 0u; pair < pairs; pair++) {
            let b = unpack2x16float(words[word]);
            for (var t = 0u; t < TOKENS; t++) {
                // Of tokens past the end another's, which is not used.
                sums[t] += dot(b, h[min(first_pair + t * params.ranks / 2u + pair, params.last_pair)]);
            }
            word += of_segment;
        }
    }
    for (var t = 0u; t < TOKENS; t++) {
        let token = first_token + t;
        if token < params.tokens && sums[t] != 0.0 {
#ifdef SOA
            let place = token * params.columns + soa_index(column, params.columns / 32u);
#else
            let place = token * params.columns + column;
#endif
            y[place] += params.factor * sums[t];
        }
    }
}
