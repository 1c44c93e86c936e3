// One invocation copies one number.
struct Params { elements: u32, n: u32, m: u32 }

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 64u + local;
    if i >= params.elements {
        return;
    }
    let columns = params.n + params.m;
    let row = i / columns;
    let column = i % columns;
    if column < params.n {
        out[i] = a[row * params.n + column];
    } else {
        out[i] = b[row * params.m + column - params.n];
    }
}
