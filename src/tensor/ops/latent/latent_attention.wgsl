// One workgroup, a team of LANES invocations, per token and head.
struct Params { items: u32, heads: u32, kv_heads: u32, head_dim: u32, rank: u32, capacity: u32, scale: f32, window: u32 }

@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> k_cache: array<CacheWord>;
@group(0) @binding(2) var<storage, read> state: array<u32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "window"
#import "attend"

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let id = group.y * groups.x + group.x;
    // The grid can be a little larger than the items; such a team repeats the last one and writes nothing.
    let item = min(id, params.items - 1u);
    let length = min(state[0] + item / params.heads + 1u, params.capacity);
    var attended = attend(item, 0u, window_begin(length), length, local);
    if id < params.items {
        for (var i = 0u; i < DIMS_PER_LANE; i++) {
            let d = local + i * LANES;
            if d < params.rank {
                out[item * params.rank + d] = attended.sums[i] / attended.total;
            }
        }
    }
}
