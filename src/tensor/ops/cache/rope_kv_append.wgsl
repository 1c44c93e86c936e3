// One invocation takes two numbers of a head of q, k or v: a pair that rope rotates, or two neighbours that it does not. With HEAD_NORMS a
// workgroup takes one head, since all of it goes into the norm.
#import "cos_sin"
#import "kv_cache"
#ifdef CACHE_Q8_0
#import "kv_store"

var<workgroup> block_pairs: array<vec2<f32>, 64>;
#endif

struct Params {
    items: u32, heads: u32, kv_heads: u32, head_dim: u32,
    // Pairs of a head that are rotated.
    pairs: u32, capacity: u32,
    // The first of a token's queries, keys and values that is in the input, and the number of them.
    first: u32, columns: u32,
    // The factor of sine and cosine.
    scale: f32,
    epsilon: f32,
}

@group(0) @binding(0) var<storage, read> qkv: array<f32>;
@group(0) @binding(1) var<storage, read> frequencies: array<f32>;
@group(0) @binding(2) var<storage, read> state: array<u32>;
#ifdef KEYS
@group(0) @binding(K_BINDING) var<storage, read_write> k_cache: array<CachePair>;
#endif
#ifdef VALUES
@group(0) @binding(V_BINDING) var<storage, read_write> v_cache: array<CachePair>;
#endif
#ifdef BIAS
@group(0) @binding(BIAS_BINDING) var<storage, read> bias: array<f32>;
#endif
#ifdef HEAD_NORMS
// Weights of queries, then of keys.
@group(0) @binding(NORMS_BINDING) var<storage, read> norms: array<f32>;
#endif
#ifdef QUERIES
@group(0) @binding(Q_BINDING) var<storage, read_write> q: array<vec2<f32>>;
#endif
@group(0) @binding(20) var<uniform> params: Params;

#import "placement"

#ifdef HEAD_NORMS
#import "subgroup_sum"

// The scale of this workgroup's head, its first column, and the place of its weights if it has any.
var<private> head_scale: f32;
var<private> head_column: u32;
var<private> head_weights: u32;
var<private> is_weighted: bool;
#endif

// A column of all three parts.
fn element(token: u32, column: u32) -> f32 {
    let value = qkv[token * params.columns + column - params.first];
#ifdef BIAS
    return value + bias[column];
#else
#ifdef HEAD_NORMS
    let weight = select(1.0, norms[head_weights + column - head_column], is_weighted);
    return value * head_scale * weight;
#else
    return value;
#endif
#endif
}

#ifdef HEAD_NORMS
fn prepare_norm(token: u32, head: u32, local: u32) {
    head_column = head * params.head_dim;
    var squares = 0.0;
    for (var d = local; d < params.head_dim; d += WORKGROUP) {
        let value = qkv[token * params.columns + head_column + d - params.first];
        squares += value * value;
    }
    let total = sum_over_team(vec4<f32>(squares, 0.0, 0.0, 0.0), local, 0u).x;
    is_weighted = head < params.heads + params.kv_heads;
    head_weights = select(0u, params.head_dim, head >= params.heads);
    head_scale = inverseSqrt(total / f32(params.head_dim) + params.epsilon);
#ifndef NORMED_VALUES
    head_scale = select(1.0, head_scale, is_weighted);
#endif
}
#endif

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let heads_here = params.columns / params.head_dim;
    // Pairs of a head in the cache.
    let slots = cached_head(params.head_dim) / 2u;
#ifdef HEAD_NORMS
    let id = group.y * groups.x + group.x;
    // The grid can be a little larger than the items; such a workgroup stores nothing.
    let item = min(id, params.items - 1u);
    let head = item % heads_here + params.first / params.head_dim;
    let token = item / heads_here;
    prepare_norm(token, head, local);
    for (var first = 0u; first < slots; first += WORKGROUP) {
        let i = first + local;
        turn_and_store(token, head, i, id < params.items && i < slots, local);
#ifdef CACHE_Q8_0
        workgroupBarrier();
#endif
    }
#else
    let item = (group.y * groups.x + group.x) * 64u + local;
    // Heads of q, then of k, then of v.
    let head = (item / slots) % heads_here + params.first / params.head_dim;
    turn_and_store(item / (slots * heads_here), head, item % slots, item < params.items, local);
#endif
}

fn turn_and_store(token: u32, head: u32, i: u32, is_there: bool, local: u32) {
#ifdef CACHE_Q8_0
    var values = vec2<f32>(0.0);
    if is_there && i < params.head_dim / 2u {
        values = turned_pair(token, head, i);
    }
    block_pairs[local] = values;
    workgroupBarrier();
    if is_there {
        store_quantized(token, head, i, values, local);
    }
#else
    if is_there {
        store(token, head, i, turned_pair(token, head, i));
    }
#endif
}

// What invocation `i` of a head stores.
fn turned_pair(token: u32, head: u32, i: u32) -> vec2<f32> {
    let is_turned = head < params.heads + params.kv_heads && i < params.pairs;

    var a = 2u * i;
    var b = a + 1u;
#ifndef INTERLEAVED
    if is_turned {
        a = i;
        b = i + params.pairs;
    }
#endif
    let column = head * params.head_dim;
    var values = vec2<f32>(element(token, column + a), element(token, column + b));
    if is_turned {
        let turned = cos_sin(f32(position_of(token)) * frequencies[i]) * params.scale;
        values = vec2<f32>(
            values.x * turned.x - values.y * turned.y,
            values.x * turned.y + values.y * turned.x,
        );
    }
    return values;
}

#ifdef CACHE_Q8_0
fn store_quantized(token: u32, head: u32, i: u32, values: vec2<f32>, local: u32) {
#ifdef QUERIES
    if head < params.heads {
        if i < params.head_dim / 2u {
            q[(token * params.heads + head) * (params.head_dim / 2u) + i] = values;
        }
        return;
    }
#endif
    let position = position_of(token);
    let word = local % BLOCK_PAIRS;
    if word < 8u && position < params.capacity && !has_stopped(token) {
        let kv_head = (head - params.heads) % params.kv_heads;
        let head_blocks = cached_head(params.head_dim) / 32u;
        let block = ((first_row_of(token) + position) * params.kv_heads + kv_head) * head_blocks + i / BLOCK_PAIRS;
#ifdef KEYS
        if head < params.heads + params.kv_heads {
            store_key_word(block, local - word, word);
            return;
        }
#endif
#ifdef VALUES
        store_value_word(block, local - word, word);
#endif
    }
}
#else
// The two numbers are neighbours in memory, wherever they are in the head.
fn store(token: u32, head: u32, i: u32, values: vec2<f32>) {
    let half = params.head_dim / 2u;
#ifdef QUERIES
    if head < params.heads {
        q[(token * params.heads + head) * half + i] = values;
        return;
    }
#endif
    let position = position_of(token);
    if position < params.capacity && !has_stopped(token) {
        let kv_head = (head - params.heads) % params.kv_heads;
        let at = ((first_row_of(token) + position) * params.kv_heads + kv_head) * half + i;
#ifdef KEYS
        if head < params.heads + params.kv_heads {
            k_cache[at] = cache_pair(values);
            return;
        }
#endif
#ifdef VALUES
        v_cache[at] = cache_pair(values);
#endif
    }
}
#endif
