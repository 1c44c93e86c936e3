// One invocation writes one number of one token's row.
struct Params { elements: u32, columns: u32, vocabulary: u32, rows: u32 }

@group(0) @binding(0) var<storage, read> tokens: array<u32>;
@group(0) @binding(1) var<storage, read> places: array<u32>;
@group(0) @binding(2) var<storage, read> cache: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 64u + local;
    if i >= params.elements {
        return;
    }
    let token = tokens[i / params.columns];
    let place = places[select(0u, token, token < params.vocabulary)];
    var value = 0.0;
    if place < params.rows {
        value = cache[place * params.columns + i % params.columns];
    }
    out[i] = value;
}
