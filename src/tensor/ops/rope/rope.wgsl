// One invocation rotates one pair.
struct Params { pairs_in_all: u32, heads: u32, head_dim: u32, pairs: u32, scale: f32 }

@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read> frequencies: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "cos_sin"

#ifdef POSITIONS
@group(0) @binding(2) var<storage, read> positions: array<u32>;

fn position_of(token: u32) -> u32 {
    return positions[token];
}
#else
@group(0) @binding(2) var<storage, read> state: array<u32>;

fn position_of(token: u32) -> u32 {
    return state[0] + token;
}
#endif

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let id = (group.y * groups.x + group.x) * 64u + local;
    if id >= params.pairs_in_all {
        return;
    }
    let i = id % params.pairs;
    let head = (id / params.pairs) % params.heads;
    let token = id / (params.pairs * params.heads);

    let turned = cos_sin(f32(position_of(token)) * frequencies[i]) * params.scale;
    let c = turned.x;
    let s = turned.y;

    let start = (token * params.heads + head) * params.head_dim;
#ifdef INTERLEAVED
    let a = start + 2u * i;
    let b = a + 1u;
#else
    let a = start + i;
    let b = a + params.pairs;
#endif
    let first = x[a];
    let second = x[b];
    x[a] = first * c - second * s;
    x[b] = first * s + second * c;
}
