// What the kernels of flash_attention read and write: heads in words of four numbers, the last of which ends with zeros if HEAD_DIM
// is not a multiple of four (FOUR).
struct Params { batch: u32, q_len: u32, kv_len: u32, heads: u32, kv_heads: u32, scale: f32 }

#import "numbers"

@group(0) @binding(0) var<storage, read> q: array<Number>;
@group(0) @binding(1) var<storage, read> k: array<Number>;
@group(0) @binding(2) var<storage, read> v: array<Number>;
@group(0) @binding(3) var<storage, read_write> out: array<Number>;
@group(0) @binding(20) var<uniform> params: Params;

const HEAD_WORDS = (HEAD_DIM + 3u) / 4u;
const LOWEST = -3.0e38;

#ifdef FOUR
fn query_word(vector: u32, word: u32) -> vec4<f32> {
    return q[vector * HEAD_WORDS + word] * params.scale;
}

fn key_word(vector: u32, word: u32) -> vec4<f32> {
    return k[vector * HEAD_WORDS + word];
}

fn value_word(vector: u32, word: u32) -> vec4<f32> {
    return v[vector * HEAD_WORDS + word];
}

fn store_word(vector: u32, word: u32, value: vec4<f32>) {
    out[vector * HEAD_WORDS + word] = value;
}
#else
// The dimensions of a word that exist.
fn are_there(word: u32) -> vec4<bool> {
    return vec4<u32>(4u * word) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(HEAD_DIM);
}

// Where they stand; the last one for those that don't exist.
fn places(vector: u32, word: u32) -> vec4<u32> {
    let dims = vec4<u32>(4u * word) + vec4<u32>(0u, 1u, 2u, 3u);
    return vec4<u32>(vector * HEAD_DIM) + min(dims, vec4<u32>(HEAD_DIM - 1u));
}

fn query_word(vector: u32, word: u32) -> vec4<f32> {
    let at = places(vector, word);
    return select(vec4<f32>(0.0), vec4<f32>(q[at.x], q[at.y], q[at.z], q[at.w]), are_there(word)) * params.scale;
}

fn key_word(vector: u32, word: u32) -> vec4<f32> {
    let at = places(vector, word);
    return select(vec4<f32>(0.0), vec4<f32>(k[at.x], k[at.y], k[at.z], k[at.w]), are_there(word));
}

fn value_word(vector: u32, word: u32) -> vec4<f32> {
    let at = places(vector, word);
    return select(vec4<f32>(0.0), vec4<f32>(v[at.x], v[at.y], v[at.z], v[at.w]), are_there(word));
}

fn store_word(vector: u32, word: u32, value: vec4<f32>) {
    for (var i = 0u; i < 4u; i++) {
        if 4u * word + i < HEAD_DIM {
            out[vector * HEAD_DIM + 4u * word + i] = value[i];
        }
    }
}
#endif

// How many keys a query sees.
fn seen_by(token: u32) -> u32 {
#ifdef CAUSAL
    let end = token + 1u + params.kv_len;
    return max(end, params.q_len) - params.q_len;
#else
    return params.kv_len;
#endif
}

fn largest_of(v: vec4<f32>) -> f32 {
    return max(max(v.x, v.y), max(v.z, v.w));
}

fn sum_of(v: vec4<f32>) -> f32 {
    return (v.x + v.y) + (v.z + v.w);
}
