struct Params { elements: u32, seed_low: u32, seed_high: u32 }

@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "pcg3d"

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 64u + local;
    if i < params.elements {
        // 24 bits are what f32 holds exactly.
        out[i] = f32(pcg3d(vec3<u32>(i, params.seed_low, params.seed_high)).x >> 8u) / 16777216.0;
    }
}
