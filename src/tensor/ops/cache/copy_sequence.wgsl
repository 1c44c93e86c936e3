// One word per invocation.
struct Params { words: u32, source: u32, target_at: u32 }

@group(0) @binding(0) var<storage, read_write> cache: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let word = (group.y * groups.x + group.x) * 256u + local;
    if word < params.words {
        cache[params.target_at + word] = cache[params.source + word];
    }
}
