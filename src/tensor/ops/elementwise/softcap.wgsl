// One invocation takes four numbers, 64 apart, so that neighbours read side by side.
struct Params { elements: u32, softcap: f32 }

@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "softcap"

fn load(i: u32) -> f32 {
    if i >= params.elements {
        return 0.0;
    }
    return x[i];
}

fn store(i: u32, value: f32) {
    if i < params.elements {
        x[i] = value;
    }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    if i >= params.elements {
        return;
    }
    let capped = soft_capped(vec4<f32>(load(i), load(i + 64u), load(i + 128u), load(i + 192u)));
    store(i, capped.x);
    store(i + 64u, capped.y);
    store(i + 128u, capped.z);
    store(i + 192u, capped.w);
}
