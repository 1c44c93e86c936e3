// A workgroup moves one head of one row to an earlier row, and rotates it back by the same number of positions.
struct Params { heads: u32, kv_heads: u32, first_from: u32, first_to: u32 }

@group(0) @binding(0) var<storage, read_write> k_cache: array<CachePair>;
#ifdef ROPE
@group(0) @binding(1) var<storage, read> frequencies: array<f32>;
#endif
@group(0) @binding(20) var<uniform> params: Params;

#import "cos_sin"
#import "kv_cache"
#ifdef CACHE_Q8_0
#import "kv_store"

var<workgroup> block_pairs: array<vec2<f32>, SLOTS>;
#endif

// The head before its rotation.
var<workgroup> numbers: array<f32, HEAD_DIM>;

fn load_pair(head: u32, i: u32) -> vec2<f32> {
#ifdef CACHE_Q8_0
    let index = head * (SLOTS * 2u) + 2u * i;
    let quants = atomicLoad(&k_cache[vector_word(index / 4u)]);
    let scales = atomicLoad(&k_cache[scales_word(index / 4u)]);
    return vec2<f32>(scaled_number(quants, scales, index), scaled_number(quants, scales, index + 1u));
#else
    return cached_pair(k_cache[head * SLOTS + i]);
#endif
}

// A number of the head after its rotation.
fn turned(d: u32) -> f32 {
#ifdef ROPE
    if d < 2u * ROPE_PAIRS {
#ifdef INTERLEAVED
        let pair = d / 2u;
        let first = d % 2u == 0u;
        let other = d ^ 1u;
#else
        let pair = d % ROPE_PAIRS;
        let first = d < ROPE_PAIRS;
        let other = select(d - ROPE_PAIRS, d + ROPE_PAIRS, first);
#endif
        let turn = cos_sin(f32(params.first_from - params.first_to) * frequencies[pair]);
        return numbers[d] * turn.x + select(-turn.y, turn.y, first) * numbers[other];
    }
#endif
    return numbers[d];
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    // Workgroups past the end repeat the last head.
    let head = min(group.y * groups.x + group.x, params.heads - 1u);
    let source = params.first_from * params.kv_heads + head;
    let to = params.first_to * params.kv_heads + head;
    for (var i = local; i < HEAD_DIM / 2u; i += 64u) {
        let pair = load_pair(source, i);
        numbers[2u * i] = pair.x;
        numbers[2u * i + 1u] = pair.y;
    }
    workgroupBarrier();
#ifdef CACHE_Q8_0
    for (var i = local; i < SLOTS; i += 64u) {
        var pair = vec2<f32>(0.0);
        if i < HEAD_DIM / 2u {
            pair = vec2<f32>(turned(2u * i), turned(2u * i + 1u));
        }
        block_pairs[i] = pair;
    }
    workgroupBarrier();
    for (var i = local; i < SLOTS / 2u; i += 64u) {
        store_key_word(to * (SLOTS / BLOCK_PAIRS) + i / 8u, i / 8u * BLOCK_PAIRS, i % 8u);
    }
#else
    for (var i = local; i < SLOTS; i += 64u) {
        k_cache[to * SLOTS + i] = cache_pair(vec2<f32>(turned(2u * i), turned(2u * i + 1u)));
    }
#endif
}
