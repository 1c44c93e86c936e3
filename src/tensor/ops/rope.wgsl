// One invocation turns one pair.
struct Params { pairs_in_all: u32, heads: u32, head_dim: u32, pairs: u32 }

@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read> frequencies: array<f32>;
@group(0) @binding(2) var<storage, read> state: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

// Cosine and sine, within 1e-7 for |angle| < 2^18. The built-ins may be off by 2^-11, which a model's logits show.
// Reduction by quarter turns after Cody and Waite, π/2 in four parts, the first two exact when multiplied; polynomials on
// [-π/4, π/4] of the Cephes library (Moshier).
fn cos_sin(angle: f32) -> vec2<f32> {
    let quarters = round(angle * 0.636619772367581);
    let r = (((angle - quarters * 1.5) - quarters * 0.0703125) - quarters * 4.83751296997070312e-4)
        - quarters * 7.549789954891882e-8;
    let z = r * r;
    let s = r + r * z * (-1.6666654611e-1 + z * (8.3321608736e-3 - z * 1.9515295891e-4));
    let c = 1.0 - 0.5 * z + z * z * (4.166664568298827e-2 + z * (-1.388731625493765e-3 + z * 2.443315711809948e-5));
    switch i32(quarters) & 3 {
        case 0: { return vec2<f32>(c, s); }
        case 1: { return vec2<f32>(-s, c); }
        case 2: { return vec2<f32>(-c, -s); }
        default: { return vec2<f32>(s, -c); }
    }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let id = (group.y * groups.x + group.x) * 64u + local;
    if id >= params.pairs_in_all {
        return;
    }
    let i = id % params.pairs;
    let head = (id / params.pairs) % params.heads;
    let token = id / (params.pairs * params.heads);

    let turned = cos_sin(f32(state[0] + token) * frequencies[i]);
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
