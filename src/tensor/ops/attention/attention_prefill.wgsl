// A workgroup of 4 · ROWS invocations computes ROWS rows, which are neighbouring tokens' queries of the heads that share one
// key-value head, and goes over the positions in tiles of 64 keys. Invocation (row lane, key lane) scores 4 rows × 4 keys,
// and then weighs the values of 4 dimensions in each group of 64 for its rows. Keys, values and weights are in workgroup
// memory in stages: CHUNK dimensions of all keys, until all dimensions are scored, then CHUNK keys of 64 dimensions of
// values. While one stage is computed, the next is on its way in registers, two words for each invocation.
//
// Words of four numbers are placed so that words stored or read at once are in different banks: hence `^`.
struct Params { rows: u32, heads: u32, kv_heads: u32, capacity: u32, scale: f32, window: u32, softcap: f32 }

@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> k_cache: array<CacheVector>;
@group(0) @binding(2) var<storage, read> v_cache: array<CacheVector>;
@group(0) @binding(3) var<storage, read> state: array<u32>;
#ifdef SINKS
@group(0) @binding(4) var<storage, read> sinks: array<f32>;
#endif
@group(0) @binding(OUT_BINDING) var<storage, read_write> out: array<vec4<f32>>;
@group(0) @binding(20) var<uniform> params: Params;

#import "kv_vectors"

const INVOCATIONS = 4u * ROWS;
// From one of an invocation's rows to the next.
const NEXT = ROWS / 4u;
const KEYS = 64u;
// Words of a head.
const HEAD_WORDS = HEAD_DIM / 4u;
// Words of a chunk of dimensions.
const CHUNK_WORDS = CHUNK / 4u;
// Stages of keys of a tile.
const KEY_STAGES = (HEAD_DIM + CHUNK - 1u) / CHUNK;
// Groups of 64 dimensions of values. A workgroup holds four at most, so heads of more than 256 dimensions take several workgroups.
const GROUPS = min((HEAD_DIM + 63u) / 64u, 4u);
// With RESIDENT, all dimensions of the queries are in workgroup memory, or else those of a chunk.
#ifdef RESIDENT
const QUERY_WORDS = KEY_STAGES * CHUNK_WORDS;
#else
const QUERY_WORDS = CHUNK_WORDS;
#endif
const LOWEST = -3.0e38;
#ifdef SOFTCAP
#import "softcap"
#endif

#ifdef SUBGROUPS
#require subgroups
// Eight neighbouring invocations share a maximum or a sum before it goes through workgroup memory.
const PARTS = 2u;
#else
const PARTS = 16u;
#endif

var<workgroup> queries: array<vec4<f32>, ROWS * QUERY_WORDS>;
// Keys, and then values.
var<workgroup> keys_values: array<vec4<f32>, KEYS * CHUNK_WORDS>;
var<workgroup> weights: array<vec4<f32>, ROWS * KEYS / 4u>;
#ifdef RESIDENT
var<workgroup> parts: array<vec4<f32>, NEXT * PARTS>;
#endif

// The first word of a value that this workgroup sums.
var<private> first_word_of_values: u32;

// One number or word for each of an invocation's rows.
struct Rows { r0: vec4<f32>, r1: vec4<f32>, r2: vec4<f32>, r3: vec4<f32> }

// QUERY_WORDS of each row from `first_word` on.
fn load_queries(first_word: u32, first_row: u32, kv_head: u32, local: u32) {
    let group = params.heads / params.kv_heads;
    for (var i = local; i < ROWS * QUERY_WORDS; i += INVOCATIONS) {
        let word = i % QUERY_WORDS;
        let row = i / QUERY_WORDS;
        let n = min(first_row + row, params.rows - 1u);
        let head = kv_head * group + n % group;
        let at = first_word + word;
        var value = vec4<f32>(0.0);
        if at < HEAD_WORDS {
            value = q[(n / group * params.heads + head) * HEAD_WORDS + at] * params.scale;
        }
        queries[word * ROWS + (row ^ (word & 7u))] = value;
    }
}

// What an invocation loads of a stage.
struct Pair { first: vec4<f32>, second: vec4<f32> }

// Keys past the end repeat the last one: the cache after it may hold NaN.
fn load_key(chunk: u32, first_key: u32, last_key: u32, kv_head: u32, i: u32) -> vec4<f32> {
    let at = chunk * CHUNK_WORDS + i % CHUNK_WORDS;
    let key = min(first_key + i / CHUNK_WORDS, last_key);
    if at >= HEAD_WORDS {
        return vec4<f32>(0.0);
    }
    return key_vector((key * params.kv_heads + kv_head) * (cached_head(HEAD_DIM) / 4u) + at);
}

fn load_value(group: u32, first_key: u32, last_key: u32, kv_head: u32, i: u32) -> vec4<f32> {
    let at = first_word_of_values + group * 16u + i % 16u;
    let key = min(first_key + i / 16u, last_key);
    if at >= HEAD_WORDS {
        return vec4<f32>(0.0);
    }
    return value_vector((key * params.kv_heads + kv_head) * (cached_head(HEAD_DIM) / 4u) + at);
}

// Stages count from the tile's first; those of values go through all groups of dimensions of some keys before the next keys.
fn load_stage(stage: u32, first_key: u32, last_key: u32, kv_head: u32, local: u32) -> Pair {
    if stage < KEY_STAGES {
        return Pair(
            load_key(stage, first_key, last_key, kv_head, local),
            load_key(stage, first_key, last_key, kv_head, local + INVOCATIONS),
        );
    }
    let group = (stage - KEY_STAGES) % GROUPS;
    let part_key = first_key + (stage - KEY_STAGES) / GROUPS * CHUNK;
    return Pair(
        load_value(group, part_key, last_key, kv_head, local),
        load_value(group, part_key, last_key, kv_head, local + INVOCATIONS),
    );
}

// What follows a stage of values: the next one, or the keys of the next tile.
fn load_next(stage: u32, first_key: u32, last_key: u32, kv_head: u32, local: u32) -> Pair {
    if stage + 1u < KEY_STAGES + GROUPS * (KEYS / CHUNK) {
        return load_stage(stage + 1u, first_key, last_key, kv_head, local);
    }
    return load_stage(0u, first_key + KEYS, last_key, kv_head, local);
}

// Key 4a + b is at b · 16 + a.
fn key_place(i: u32) -> u32 {
    let word = i % CHUNK_WORDS;
    let key = i / CHUNK_WORDS;
    return word * KEYS + ((key % 4u * 16u + key / 4u) ^ (word & 7u));
}

fn store_keys(pair: Pair, local: u32) {
    keys_values[key_place(local)] = pair.first;
    keys_values[key_place(local + INVOCATIONS)] = pair.second;
}

fn store_values(pair: Pair, local: u32) {
    keys_values[local] = pair.first;
    keys_values[local + INVOCATIONS] = pair.second;
}

fn products(sum: vec4<f32>, x: vec4<f32>, k0: vec4<f32>, k1: vec4<f32>, k2: vec4<f32>, k3: vec4<f32>) -> vec4<f32> {
    var result = fma(vec4<f32>(x.x), vec4<f32>(k0.x, k1.x, k2.x, k3.x), sum);
    result = fma(vec4<f32>(x.y), vec4<f32>(k0.y, k1.y, k2.y, k3.y), result);
    result = fma(vec4<f32>(x.z), vec4<f32>(k0.z, k1.z, k2.z, k3.z), result);
    return fma(vec4<f32>(x.w), vec4<f32>(k0.w, k1.w, k2.w, k3.w), result);
}

// Adds the chunk's dimensions to the scores of 4 rows × 4 keys; its queries start at `first_word`.
fn score(scores: Rows, first_word: u32, row: u32, lane: u32) -> Rows {
    var sum = scores;
    for (var word = 0u; word < CHUNK_WORDS; word++) {
        let turn = word & 7u;
        let k_at = word * KEYS + (lane ^ turn);
        let k0 = keys_values[k_at];
        let k1 = keys_values[k_at + 16u];
        let k2 = keys_values[k_at + 32u];
        let k3 = keys_values[k_at + 48u];
        let q_word = first_word + word;
        let q_at = q_word * ROWS + (row ^ (q_word & 7u));
        sum.r0 = products(sum.r0, queries[q_at], k0, k1, k2, k3);
        sum.r1 = products(sum.r1, queries[q_at + NEXT], k0, k1, k2, k3);
        sum.r2 = products(sum.r2, queries[q_at + 2u * NEXT], k0, k1, k2, k3);
        sum.r3 = products(sum.r3, queries[q_at + 3u * NEXT], k0, k1, k2, k3);
    }
    return sum;
}

fn weigh_four(sum: vec4<f32>, w: vec4<f32>, v0: vec4<f32>, v1: vec4<f32>, v2: vec4<f32>, v3: vec4<f32>) -> vec4<f32> {
    let first = fma(vec4<f32>(w.y), v1, fma(vec4<f32>(w.x), v0, sum));
    return fma(vec4<f32>(w.w), v3, fma(vec4<f32>(w.z), v2, first));
}

// Adds the weighted values of CHUNK keys, the `part`-th of the tile.
fn weigh(sums: Rows, part: u32, row: u32, lane: u32) -> Rows {
    var sum = sums;
    for (var word = 0u; word < CHUNK_WORDS; word++) {
        let v_at = word * 64u + lane;
        let v0 = keys_values[v_at];
        let v1 = keys_values[v_at + 16u];
        let v2 = keys_values[v_at + 32u];
        let v3 = keys_values[v_at + 48u];
        let w_at = row * 16u + ((part * CHUNK_WORDS + word) ^ row);
        sum.r0 = weigh_four(sum.r0, weights[w_at], v0, v1, v2, v3);
        sum.r1 = weigh_four(sum.r1, weights[w_at + 16u * NEXT], v0, v1, v2, v3);
        sum.r2 = weigh_four(sum.r2, weights[w_at + 32u * NEXT], v0, v1, v2, v3);
        sum.r3 = weigh_four(sum.r3, weights[w_at + 48u * NEXT], v0, v1, v2, v3);
    }
    return sum;
}

fn scaled(sums: Rows, by: vec4<f32>) -> Rows {
    return Rows(sums.r0 * by.x, sums.r1 * by.y, sums.r2 * by.z, sums.r3 * by.w);
}

// Which keys a query at a position sees.
fn is_seen(keys: vec4<u32>, position: u32) -> vec4<bool> {
#ifdef WINDOW
    return (keys <= vec4<u32>(position)) & (keys + params.window > vec4<u32>(position));
#else
    return keys <= vec4<u32>(position);
#endif
}

fn largest_of(v: vec4<f32>) -> f32 {
    return max(max(v.x, v.y), max(v.z, v.w));
}

fn weight_of(scores: vec4<f32>, largest: f32) -> vec4<f32> {
#ifdef WINDOW
    // A row whose window begins after these keys has no largest score yet.
    return exp(min(scores - largest, vec4<f32>(0.0)));
#else
    return exp(scores - largest);
#endif
}

fn sum_of(v: vec4<f32>) -> f32 {
    return (v.x + v.y) + (v.z + v.w);
}

// Numbers that an invocation shares with the others of its rows. They replace queries that are not resident, which were all
// read and are loaded again.
fn store_part(values: vec4<f32>, at: u32) {
#ifdef RESIDENT
    parts[at] = values;
#else
    queries[at] = values;
#endif
}

fn load_part(row: u32, part: u32) -> vec4<f32> {
#ifdef RESIDENT
    return parts[row * PARTS + part];
#else
    return queries[row * PARTS + part];
#endif
}

// Leaves one number of each of the invocation's rows for `gather_…` after a barrier.
fn store_parts(values: vec4<f32>, row: u32, lane: u32) {
#ifdef SUBGROUPS
    if lane % 8u == 0u {
        store_part(values, row * PARTS + lane / 8u);
    }
#else
    store_part(values, row * PARTS + lane);
#endif
}

fn scatter_largest(values: vec4<f32>, row: u32, lane: u32) {
    var most = values;
#ifdef SUBGROUPS
    most = max(most, subgroupShuffleXor(most, 1u));
    most = max(most, subgroupShuffleXor(most, 2u));
    most = max(most, subgroupShuffleXor(most, 4u));
#endif
    store_parts(most, row, lane);
}

fn gather_largest(row: u32) -> vec4<f32> {
    var most = load_part(row, 0u);
    for (var part = 1u; part < PARTS; part++) {
        most = max(most, load_part(row, part));
    }
    return most;
}

fn scatter_sum(values: vec4<f32>, row: u32, lane: u32) {
    var sum = values;
#ifdef SUBGROUPS
    sum += subgroupShuffleXor(sum, 1u);
    sum += subgroupShuffleXor(sum, 2u);
    sum += subgroupShuffleXor(sum, 4u);
#endif
    store_parts(sum, row, lane);
}

fn gather_sum(row: u32) -> vec4<f32> {
    var sum = load_part(row, 0u);
    for (var part = 1u; part < PARTS; part++) {
        sum += load_part(row, part);
    }
    return sum;
}

fn store(first_row: u32, row: u32, kv_head: u32, word: u32, value: vec4<f32>) {
    let n = first_row + row;
    let at = first_word_of_values + word;
    if n < params.rows && at < HEAD_WORDS {
        let group = params.heads / params.kv_heads;
        let head = kv_head * group + n % group;
        out[(n / group * params.heads + head) * HEAD_WORDS + at] = value;
    }
}

fn store_rows(first_row: u32, row: u32, kv_head: u32, word: u32, sums: Rows) {
    store(first_row, row, kv_head, word, sums.r0);
    store(first_row, row + NEXT, kv_head, word, sums.r1);
    store(first_row, row + 2u * NEXT, kv_head, word, sums.r2);
    store(first_row, row + 3u * NEXT, kv_head, word, sums.r3);
}

@compute @workgroup_size(INVOCATIONS)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let kv_head = id.x;
    first_word_of_values = id.z * 64u;
    // The last tokens have the most positions, so they go first and don't run alone at the end.
    let first_row = (groups.y - 1u - id.y) * ROWS;
    let group = params.heads / params.kv_heads;
    // Eight neighbouring invocations are in one row, so that 32 of them read few words at once.
    let lane = (local & 7u) | ((local >> 2u) & 8u);
    let row = ((local >> 3u) & 3u) | ((local >> 6u) << 2u);

    let last_row = params.rows - 1u;
    let rows = min(vec4<u32>(first_row + row) + vec4<u32>(0u, NEXT, 2u * NEXT, 3u * NEXT), vec4<u32>(last_row));
    let positions = vec4<u32>(state[0]) + rows / vec4<u32>(group);
    let last_key = min(state[0] + min(first_row + ROWS - 1u, last_row) / group, params.capacity - 1u);

    // The largest score of each row so far, and this invocation's part of the sum of exp(score - largest).
    var largest = vec4<f32>(LOWEST);
    var total = vec4<f32>(0.0);
    let nothing = Rows(vec4<f32>(0.0), vec4<f32>(0.0), vec4<f32>(0.0), vec4<f32>(0.0));
    var sums0 = nothing;
#ifdef DIMS_64
    var sums1 = nothing;
#endif
#ifdef DIMS_128
    var sums2 = nothing;
#endif
#ifdef DIMS_192
    var sums3 = nothing;
#endif
#ifdef RESIDENT
    load_queries(0u, first_row, kv_head, local);
#endif
#ifdef WINDOW
    // The tile in which the window of the first row begins, which is the oldest.
    let oldest = state[0] + first_row / group + 1u;
    let begin = (max(oldest, params.window) - params.window) / KEYS * KEYS;
#else
    let begin = 0u;
#endif
    var next = load_stage(0u, begin, last_key, kv_head, local);
    for (var first_key = begin; first_key <= last_key; first_key += KEYS) {
        var scores = nothing;
        for (var chunk = 0u; chunk < KEY_STAGES; chunk++) {
#ifndef RESIDENT
            load_queries(chunk * CHUNK_WORDS, first_row, kv_head, local);
#endif
            store_keys(next, local);
            workgroupBarrier();
            next = load_stage(chunk + 1u, first_key, last_key, kv_head, local);
#ifdef RESIDENT
            scores = score(scores, chunk * CHUNK_WORDS, row, lane);
#else
            scores = score(scores, 0u, row, lane);
#endif
            workgroupBarrier();
        }
#ifdef SOFTCAP
        scores = Rows(soft_capped(scores.r0), soft_capped(scores.r1), soft_capped(scores.r2), soft_capped(scores.r3));
#endif
        let keys = vec4<u32>(first_key + lane * 4u) + vec4<u32>(0u, 1u, 2u, 3u);
        let there0 = is_seen(keys, positions.x);
        let there1 = is_seen(keys, positions.y);
        let there2 = is_seen(keys, positions.z);
        let there3 = is_seen(keys, positions.w);
        let lowest = vec4<f32>(LOWEST);
        scatter_largest(
            vec4<f32>(
                largest_of(select(lowest, scores.r0, there0)), largest_of(select(lowest, scores.r1, there1)),
                largest_of(select(lowest, scores.r2, there2)), largest_of(select(lowest, scores.r3, there3)),
            ),
            row, lane,
        );
        workgroupBarrier();
        let before = largest;
        largest = max(largest, gather_largest(row));
        let keep = exp(before - largest);
        let none = vec4<f32>(0.0);
        let w0 = select(none, weight_of(scores.r0, largest.x), there0);
        let w1 = select(none, weight_of(scores.r1, largest.y), there1);
        let w2 = select(none, weight_of(scores.r2, largest.z), there2);
        let w3 = select(none, weight_of(scores.r3, largest.w), there3);
        total = total * keep + vec4<f32>(sum_of(w0), sum_of(w1), sum_of(w2), sum_of(w3));
        let w_at = row * 16u + (lane ^ row);
        weights[w_at] = w0;
        weights[w_at + 16u * NEXT] = w1;
        weights[w_at + 32u * NEXT] = w2;
        weights[w_at + 48u * NEXT] = w3;

        sums0 = scaled(sums0, keep);
#ifdef DIMS_64
        sums1 = scaled(sums1, keep);
#endif
#ifdef DIMS_128
        sums2 = scaled(sums2, keep);
#endif
#ifdef DIMS_192
        sums3 = scaled(sums3, keep);
#endif
        for (var part = 0u; part * CHUNK < KEYS; part++) {
            let stage = KEY_STAGES + part * GROUPS;
            store_values(next, local);
            workgroupBarrier();
            next = load_next(stage, first_key, last_key, kv_head, local);
            sums0 = weigh(sums0, part, row, lane);
            workgroupBarrier();
#ifdef DIMS_64
            store_values(next, local);
            workgroupBarrier();
            next = load_next(stage + 1u, first_key, last_key, kv_head, local);
            sums1 = weigh(sums1, part, row, lane);
            workgroupBarrier();
#endif
#ifdef DIMS_128
            store_values(next, local);
            workgroupBarrier();
            next = load_next(stage + 2u, first_key, last_key, kv_head, local);
            sums2 = weigh(sums2, part, row, lane);
            workgroupBarrier();
#endif
#ifdef DIMS_192
            store_values(next, local);
            workgroupBarrier();
            next = load_next(stage + 3u, first_key, last_key, kv_head, local);
            sums3 = weigh(sums3, part, row, lane);
            workgroupBarrier();
#endif
        }
    }
    scatter_sum(total, row, lane);
    workgroupBarrier();
#ifdef SINKS
    // As one more position whose value is zero.
    let heads = vec4<u32>(kv_head * group) + rows % vec4<u32>(group);
    let of_rows = vec4<f32>(sinks[heads.x], sinks[heads.y], sinks[heads.z], sinks[heads.w]);
    let highest = max(largest, of_rows);
    let share = exp(largest - highest);
    let by = share / (gather_sum(row) * share + exp(of_rows - highest));
#else
    let by = vec4<f32>(1.0) / gather_sum(row);
#endif
    store_rows(first_row, row, kv_head, lane, scaled(sums0, by));
#ifdef DIMS_64
    store_rows(first_row, row, kv_head, 16u + lane, scaled(sums1, by));
#endif
#ifdef DIMS_128
    store_rows(first_row, row, kv_head, 32u + lane, scaled(sums2, by));
#endif
#ifdef DIMS_192
    store_rows(first_row, row, kv_head, 48u + lane, scaled(sums3, by));
#endif
}
