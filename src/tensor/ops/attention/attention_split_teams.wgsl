// One workgroup, a team of LANES invocations, per head, split and token; with subgroups, without barriers.
struct Params { heads: u32, kv_heads: u32, head_dim: u32, capacity: u32, scale: f32, splits: u32, window: u32, softcap: f32 }

@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> k_cache: array<CacheWord>;
@group(0) @binding(2) var<storage, read> v_cache: array<CacheWord>;
@group(0) @binding(3) var<storage, read> state: array<u32>;
@group(0) @binding(4) var<storage, read_write> sums: array<f32>;
@group(0) @binding(5) var<storage, read_write> totals: array<vec2<f32>>;
@group(0) @binding(20) var<uniform> params: Params;

#import "soa"
#import "splits"
#import "window"
#import "placement"
#import "attend"

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let head = group.x;
    let split = group.y;
    let token = group.z;
    let length = length_of(token);
    let first = window_begin(length);
    let positions = positions_per_split(length - first, params.splits, TILE);
    let begin = first + split * positions;
    let end = min(begin + positions, length);
    let blocks = params.heads * params.head_dim / 32u;
    // Outputs are [token][split].
    let first_total = (token * params.splits + split) * params.heads;
    let first_sum = first_total * params.head_dim;
    if begin >= end {
        for (var d = local; d < params.head_dim; d += LANES) {
            sums[first_sum + soa_index(head * params.head_dim + d, blocks)] = 0.0;
        }
        if local == 0u {
            totals[first_total + head] = vec2<f32>(0.0);
        }
        return;
    }
    var attended = attend(token * params.heads + head, first_row_of(token), begin, end, local);
    for (var i = 0u; i < DIMS_PER_LANE; i++) {
        let d = local + i * LANES;
        if d < params.head_dim {
            sums[first_sum + soa_index(head * params.head_dim + d, blocks)] = attended.sums[i];
        }
    }
    if local == 0u {
        totals[first_total + head] = vec2<f32>(attended.largest, attended.total);
    }
}
