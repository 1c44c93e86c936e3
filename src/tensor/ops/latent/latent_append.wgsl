// A workgroup takes one token.
struct Params {
    tokens: u32, rank: u32,
    // Pairs of a key that are turned.
    pairs: u32,
    heads: u32,
    // Numbers of a head of q; its last 2 · pairs are turned.
    of_head: u32,
    // Pairs of a row of the cache, with its padding.
    slots: u32,
    capacity: u32,
    // The factor of sine and cosine.
    scale: f32,
    epsilon: f32,
}

@group(0) @binding(0) var<storage, read> kv: array<f32>;
@group(0) @binding(1) var<storage, read> norm: array<f32>;
@group(0) @binding(2) var<storage, read> frequencies: array<f32>;
@group(0) @binding(3) var<storage, read> q: array<f32>;
@group(0) @binding(4) var<storage, read> state: array<u32>;
@group(0) @binding(5) var<storage, read_write> k_cache: array<CachePair>;
@group(0) @binding(6) var<storage, read_write> queries: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "cos_sin"
#import "kv_cache"
#ifdef CACHE_Q8_0
#import "kv_store"

var<workgroup> block_pairs: array<vec2<f32>, 64>;
#endif

var<workgroup> squares: array<f32, 64>;

// A pair from two numbers, turned as far as its position says.
fn turned(position: u32, pair: u32, values: vec2<f32>) -> vec2<f32> {
    let turn = cos_sin(f32(position) * frequencies[pair]) * params.scale;
    return vec2<f32>(values.x * turn.x - values.y * turn.y, values.x * turn.y + values.y * turn.x);
}

// The places of a pair's numbers.
fn places(pair: u32) -> vec2<u32> {
#ifdef INTERLEAVED
    return vec2<u32>(2u * pair, 2u * pair + 1u);
#else
    return vec2<u32>(pair, pair + params.pairs);
#endif
}

// A pair of a row of the cache: turned numbers, then the latent, then padding.
fn pair_of_row(row: u32, position: u32, i: u32, factor: f32) -> vec2<f32> {
    if i < params.pairs {
        let at = places(i) + row + params.rank;
        return turned(position, i, vec2<f32>(kv[at.x], kv[at.y]));
    }
    let at = 2u * (i - params.pairs);
    if at < params.rank {
        return vec2<f32>(kv[row + at], kv[row + at + 1u]) * factor * vec2<f32>(norm[at], norm[at + 1u]);
    }
    return vec2<f32>(0.0);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let id = group.y * groups.x + group.x;
    // The grid can be a little larger than the tokens; such a workgroup repeats the last one and writes nothing.
    let token = min(id, params.tokens - 1u);
    let position = state[0] + token;
    let row = token * (params.rank + 2u * params.pairs);
    var sum = 0.0;
    for (var i = local; i < params.rank; i += 64u) {
        sum += kv[row + i] * kv[row + i];
    }
    squares[local] = sum;
    for (var step = 32u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if local < step {
            squares[local] += squares[local + step];
        }
    }
    workgroupBarrier();
    let factor = inverseSqrt(squares[0] / f32(params.rank) + params.epsilon);

    // A step that ran ahead past the end of the context must not wrap or clamp onto a real entry.
    let is_there = id < params.tokens && position < params.capacity;
    for (var first = 0u; first < params.slots; first += 64u) {
        let i = first + local;
        let pair = pair_of_row(row, position, i, factor);
#ifdef CACHE_Q8_0
        block_pairs[local] = pair;
        workgroupBarrier();
        let word = local % BLOCK_PAIRS;
        if is_there && i < params.slots && word < 8u {
            store_key_word((position * params.slots + i) / BLOCK_PAIRS, local - word, word);
        }
        workgroupBarrier();
#else
        if is_there && i < params.slots {
            k_cache[position * params.slots + i] = cache_pair(pair);
        }
#endif
    }

    if id < params.tokens {
        for (var i = local; i < params.heads * params.pairs; i += 64u) {
            let head = token * params.heads + i / params.pairs;
            let pair = i % params.pairs;
            let at = places(pair) + (head + 1u) * params.of_head - 2u * params.pairs;
            let values = turned(position, pair, vec2<f32>(q[at.x], q[at.y]));
            let to = head * (params.rank + 2u * params.pairs) + 2u * pair;
            queries[to] = values.x;
            queries[to + 1u] = values.y;
        }
    }
}
