// One invocation copies two neighbouring numbers of k and of v; in q8_0, two neighbours in the cache.
struct Params { items: u32, kv_heads: u32, head_dim: u32, capacity: u32 }

@group(0) @binding(0) var<storage, read> k: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read> v: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read_write> k_cache: array<CachePair>;
@group(0) @binding(3) var<storage, read_write> v_cache: array<CachePair>;
@group(0) @binding(4) var<storage, read> state: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "kv_cache"
#ifdef CACHE_Q8_0
#import "kv_store"

// Of keys, and then of values.
var<workgroup> block_pairs: array<vec2<f32>, 128>;
#endif

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let item = (group.y * groups.x + group.x) * 64u + local;
    // Pairs of a head in the cache.
    let slots = cached_head(params.head_dim) / 2u;
    let i = item % slots;
    let head = item / slots;
    // A step that ran ahead past the end of the context must not wrap or clamp onto a real entry.
    let is_there = item < params.items && state[0] + head / params.kv_heads < params.capacity;
    let source = head * (params.head_dim / 2u) + i;
    let to_head = state[0] * params.kv_heads + head;
#ifdef CACHE_Q8_0
    var key = vec2<f32>(0.0);
    var value = vec2<f32>(0.0);
    if is_there && i < params.head_dim / 2u {
        key = k[source];
        value = v[source];
    }
    block_pairs[local] = key;
    block_pairs[64u + local] = value;
    workgroupBarrier();
    let word = local % BLOCK_PAIRS;
    if is_there && word < 8u {
        let block = to_head * (slots / BLOCK_PAIRS) + i / BLOCK_PAIRS;
        store_key_word(block, local - word, word);
        store_value_word(block, 64u + local - word, word);
    }
#else
    if is_there {
        k_cache[to_head * slots + i] = cache_pair(k[source]);
        v_cache[to_head * slots + i] = cache_pair(v[source]);
    }
#endif
}
