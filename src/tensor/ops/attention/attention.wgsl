// One workgroup, a team of LANES invocations, per token and head.
struct Params { items: u32, heads: u32, kv_heads: u32, head_dim: u32, capacity: u32, scale: f32, window: u32, softcap: f32 }

@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> k_cache: array<CacheWord>;
@group(0) @binding(2) var<storage, read> v_cache: array<CacheWord>;
#ifdef PER_HEAD
@group(0) @binding(4) var<storage, read> per_head: array<f32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;
#else
#ifdef DISENTANGLED
@group(0) @binding(4) var<storage, read> distance_keys: array<f32>;
@group(0) @binding(5) var<storage, read> distance_queries: array<f32>;
@group(0) @binding(6) var<storage, read> distance_rows: array<u32>;
@group(0) @binding(7) var<storage, read_write> out: array<f32>;
#else
@group(0) @binding(4) var<storage, read_write> out: array<f32>;
#endif
#endif
@group(0) @binding(20) var<uniform> params: Params;

#import "window"
#import "attend"

// The first position that a token attends to, and the end of the range.
#ifdef SPANS
@group(0) @binding(3) var<storage, read> spans: array<u32>;

fn seen_by(token: u32) -> vec2<u32> {
#ifdef ONE_SPAN
    let span = 0u;
#else
    let span = token;
#endif
    return vec2<u32>(spans[2u * span], min(spans[2u * span + 1u], params.capacity));
}
#else
@group(0) @binding(3) var<storage, read> state: array<u32>;

fn seen_by(token: u32) -> vec2<u32> {
    let length = min(state[0] + token + 1u, params.capacity);
    return vec2<u32>(window_begin(length), length);
}
#endif

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let id = group.y * groups.x + group.x;
    // The grid can be a little larger than the items; such a team repeats the last one and writes nothing.
    let item = min(id, params.items - 1u);
    let seen = seen_by(item / params.heads);
    var attended = attend(item, 0u, seen.x, seen.y, local);
#ifdef SINKS
    // As one more position whose value is zero.
    let sink = per_head[item % params.heads];
    let largest = max(attended.largest, sink);
    let keep = exp(attended.largest - largest);
    let total = attended.total * keep + exp(sink - largest);
#else
    let keep = 1.0;
    let total = attended.total;
#endif
    if id < params.items {
        for (var i = 0u; i < DIMS_PER_LANE; i++) {
            let d = local + i * LANES;
            if d < params.head_dim {
                out[item * params.head_dim + d] = attended.sums[i] * keep / total;
            }
        }
    }
}
