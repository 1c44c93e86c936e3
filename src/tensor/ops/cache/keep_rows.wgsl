#import "soa"

struct Params {
    elements: u32,
    // The first token that is kept.
    first: u32,
    columns: u32,
    // Rows of a ring, and its numbers.
    rows: u32, len: u32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> position: array<u32>;
@group(0) @binding(2) var<storage, read_write> rings: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 64u + local;
    if i >= params.elements {
        return;
    }
    let token = params.first + i / params.columns;
    let column = i % params.columns;
#ifdef SEQUENCES
    let place = token * 4u;
    let ring = position[place + 3u] * params.len;
    let at = position[place];
#else
    let place = 0u;
    let ring = 0u;
    let at = position[0] + token;
#endif
    if position[place + 2u] != 0u {
        return;
    }
#ifdef SOA
    let source = soa_index(column, params.columns / 32u);
#else
    let source = column;
#endif
    rings[ring + at % params.rows * params.columns + column] = x[token * params.columns + source];
}
