struct Params { elements: u32, limit: f32 }

@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 64u + local;
    if i < params.elements {
        x[i] = clamp(x[i], -params.limit, params.limit);
    }
}
