// A workgroup of 128 invocations computes 32 rows, which are neighbouring tokens' queries of the heads that share one key-value head,
// and goes over the keys in tiles of 64. Invocation (row lane, key lane) scores 4 rows × 4 keys, and then weighs the values of 4
// dimensions in each group of 64 for its rows. Operands are in workgroup memory in stages: 16 dimensions of all queries and keys,
// until all dimensions are scored, then 16 keys of 64 dimensions of values. While one stage is computed, the next is on its way in
// registers.
//
// Words of four numbers are placed so that words stored or read at once are in different banks: hence `^`.
#import "flash_attention_tensors"

const INVOCATIONS = 128u;
const ROWS = 32u;
// From one of an invocation's rows to the next.
const NEXT = 8u;
const KEYS = 64u;
// Words of a stage: of dimensions of queries and keys, or of keys whose values it has.
const WORDS = 4u;
const KEY_STAGES = (HEAD_WORDS + WORDS - 1u) / WORDS;
// Groups of 64 dimensions.
const GROUPS = (HEAD_WORDS + 15u) / 16u;

#ifdef SUBGROUPS
#require subgroups
// Eight neighbouring invocations share a maximum or a sum before it goes through workgroup memory.
const PARTS = 2u;
#else
const PARTS = 16u;
#endif

// Queries, and between the stages of keys and those of values the numbers that invocations of a row share.
var<workgroup> queries: array<vec4<f32>, ROWS * WORDS>;
// Keys, and then values.
var<workgroup> keys_values: array<vec4<f32>, KEYS * WORDS>;
var<workgroup> weights: array<vec4<f32>, ROWS * KEYS / 4u>;

// What a workgroup computes.
struct Task {
    batch: u32,
    kv_head: u32,
    first_row: u32,
    // Past it no row sees a key.
    last_key: u32,
}

// One number or word for each of an invocation's rows.
struct Rows { r0: vec4<f32>, r1: vec4<f32>, r2: vec4<f32>, r3: vec4<f32> }

// What an invocation loads of a stage.
struct Stage { first: vec4<f32>, second: vec4<f32>, query: vec4<f32> }

// The query of a row; rows past the end repeat the last one.
fn query_vector(task: Task, row: u32) -> u32 {
    let group = params.heads / params.kv_heads;
    let n = min(task.first_row + row, params.q_len * group - 1u);
    return (task.batch * params.q_len + n / group) * params.heads + task.kv_head * group + n % group;
}

// Keys past the end repeat the last one.
fn key_vector(task: Task, key: u32) -> u32 {
    return (task.batch * params.kv_len + min(key, task.last_key)) * params.kv_heads + task.kv_head;
}

fn load_query(task: Task, chunk: u32, local: u32) -> vec4<f32> {
    let word = chunk * WORDS + local % WORDS;
    if word >= HEAD_WORDS {
        return vec4<f32>(0.0);
    }
    return query_word(query_vector(task, local / WORDS), word);
}

fn load_key(task: Task, chunk: u32, first_key: u32, i: u32) -> vec4<f32> {
    let word = chunk * WORDS + i % WORDS;
    if word >= HEAD_WORDS {
        return vec4<f32>(0.0);
    }
    return key_word(key_vector(task, first_key + i / WORDS), word);
}

fn load_value(task: Task, group: u32, first_key: u32, i: u32) -> vec4<f32> {
    let word = group * 16u + i % 16u;
    if word >= HEAD_WORDS {
        return vec4<f32>(0.0);
    }
    return value_word(key_vector(task, first_key + i / 16u), word);
}

// Stages count from the tile's first; those of values go through all groups of dimensions of some keys before the next keys. After
// the last come the keys of the next tile.
fn load_stage(task: Task, stage: u32, first_key: u32, local: u32) -> Stage {
    if stage >= KEY_STAGES && stage < KEY_STAGES + 4u * GROUPS {
        let group = (stage - KEY_STAGES) % GROUPS;
        let part_key = first_key + (stage - KEY_STAGES) / GROUPS * 16u;
        return Stage(
            load_value(task, group, part_key, local),
            load_value(task, group, part_key, local + INVOCATIONS),
            vec4<f32>(0.0),
        );
    }
    let is_next = stage >= KEY_STAGES;
    let chunk = select(stage, 0u, is_next);
    let key = select(first_key, first_key + KEYS, is_next);
    return Stage(
        load_key(task, chunk, key, local),
        load_key(task, chunk, key, local + INVOCATIONS),
        load_query(task, chunk, local),
    );
}

// Key 4a + b is at b · 16 + a.
fn key_place(i: u32) -> u32 {
    let word = i % WORDS;
    let key = i / WORDS;
    return word * KEYS + ((key % 4u * 16u + key / 4u) ^ word);
}

fn store_keys(stage: Stage, local: u32) {
    keys_values[key_place(local)] = stage.first;
    keys_values[key_place(local + INVOCATIONS)] = stage.second;
    let word = local % WORDS;
    queries[word * ROWS + ((local / WORDS) ^ (2u * word))] = stage.query;
}

fn store_values(stage: Stage, local: u32) {
    keys_values[local] = stage.first;
    keys_values[local + INVOCATIONS] = stage.second;
}

fn products(sum: vec4<f32>, x: vec4<f32>, k0: vec4<f32>, k1: vec4<f32>, k2: vec4<f32>, k3: vec4<f32>) -> vec4<f32> {
    var result = fma(vec4<f32>(x.x), vec4<f32>(k0.x, k1.x, k2.x, k3.x), sum);
    result = fma(vec4<f32>(x.y), vec4<f32>(k0.y, k1.y, k2.y, k3.y), result);
    result = fma(vec4<f32>(x.z), vec4<f32>(k0.z, k1.z, k2.z, k3.z), result);
    return fma(vec4<f32>(x.w), vec4<f32>(k0.w, k1.w, k2.w, k3.w), result);
}

// Adds the stage's dimensions to the scores of 4 rows × 4 keys.
fn score(scores: Rows, row: u32, lane: u32) -> Rows {
    var sum = scores;
    for (var word = 0u; word < WORDS; word++) {
        let k_at = word * KEYS + (lane ^ word);
        let k0 = keys_values[k_at];
        let k1 = keys_values[k_at + 16u];
        let k2 = keys_values[k_at + 32u];
        let k3 = keys_values[k_at + 48u];
        let q_at = word * ROWS + (row ^ (2u * word));
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

// Adds the weighted values of 16 keys, the `part`-th of the tile.
fn weigh(sums: Rows, part: u32, row: u32, lane: u32) -> Rows {
    var sum = sums;
    for (var word = 0u; word < WORDS; word++) {
        let v_at = word * 64u + lane;
        let v0 = keys_values[v_at];
        let v1 = keys_values[v_at + 16u];
        let v2 = keys_values[v_at + 32u];
        let v3 = keys_values[v_at + 48u];
        let w_at = row * 16u + ((part * WORDS + word) ^ row);
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

// Leaves one number of each of the invocation's rows for `gather_…` after a barrier. All have read the queries.
fn store_parts(values: vec4<f32>, row: u32, lane: u32) {
#ifdef SUBGROUPS
    if lane % 8u == 0u {
        queries[row * PARTS + lane / 8u] = values;
    }
#else
    queries[row * PARTS + lane] = values;
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
    var most = queries[row * PARTS];
    for (var part = 1u; part < PARTS; part++) {
        most = max(most, queries[row * PARTS + part]);
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
    var sum = queries[row * PARTS];
    for (var part = 1u; part < PARTS; part++) {
        sum += queries[row * PARTS + part];
    }
    return sum;
}

fn store(task: Task, row: u32, word: u32, value: vec4<f32>) {
    if task.first_row + row < params.q_len * (params.heads / params.kv_heads) && word < HEAD_WORDS {
        store_word(query_vector(task, row), word, value);
    }
}

fn store_rows(task: Task, row: u32, word: u32, sums: Rows) {
    store(task, row, word, sums.r0);
    store(task, row + NEXT, word, sums.r1);
    store(task, row + 2u * NEXT, word, sums.r2);
    store(task, row + 3u * NEXT, word, sums.r3);
}

// How many keys each of an invocation's rows sees.
fn seen_by_rows(first_row: u32, row: u32) -> vec4<u32> {
    let group = params.heads / params.kv_heads;
    let rows = vec4<u32>(first_row + row) + vec4<u32>(0u, NEXT, 2u * NEXT, 3u * NEXT);
    let tokens = min(rows / vec4<u32>(group), vec4<u32>(params.q_len - 1u));
    return vec4<u32>(seen_by(tokens.x), seen_by(tokens.y), seen_by(tokens.z), seen_by(tokens.w));
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let group = params.heads / params.kv_heads;
    let heads = params.batch * params.kv_heads;
    let tiles = (params.q_len * group + ROWS - 1u) / ROWS;
    let index = id.y * grid.x + id.x;
    if index >= tiles * heads {
        return;
    }
    // The last tokens may see the most keys, so they go first and don't run alone at the end.
    let first_row = (tiles - 1u - index / heads) * ROWS;
    let end = seen_by(min((first_row + ROWS - 1u) / group, params.q_len - 1u));
    let task = Task(index % heads / params.kv_heads, index % params.kv_heads, first_row, max(end, 1u) - 1u);
    // Eight neighbouring invocations are in one row, so that 32 of them read few words at once.
    let lane = (local & 7u) | ((local >> 2u) & 8u);
    let row = ((local >> 3u) & 3u) | ((local >> 6u) << 2u);
    let seen = seen_by_rows(first_row, row);

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
    var next = load_stage(task, 0u, 0u, local);
    for (var first_key = 0u; first_key < end; first_key += KEYS) {
        var scores = nothing;
        for (var chunk = 0u; chunk < KEY_STAGES; chunk++) {
            store_keys(next, local);
            workgroupBarrier();
            next = load_stage(task, chunk + 1u, first_key, local);
            scores = score(scores, row, lane);
            workgroupBarrier();
        }
        let keys = vec4<u32>(first_key + lane * 4u) + vec4<u32>(0u, 1u, 2u, 3u);
        let there0 = keys < vec4<u32>(seen.x);
        let there1 = keys < vec4<u32>(seen.y);
        let there2 = keys < vec4<u32>(seen.z);
        let there3 = keys < vec4<u32>(seen.w);
        let lowest = vec4<f32>(LOWEST);
        scores = Rows(
            select(lowest, scores.r0, there0), select(lowest, scores.r1, there1),
            select(lowest, scores.r2, there2), select(lowest, scores.r3, there3),
        );
        scatter_largest(
            vec4<f32>(largest_of(scores.r0), largest_of(scores.r1), largest_of(scores.r2), largest_of(scores.r3)),
            row, lane,
        );
        workgroupBarrier();
        let before = largest;
        largest = max(largest, gather_largest(row));
        let keep = exp(before - largest);
        // A row that has seen no key yet would get the weight 1 for the others.
        let none = vec4<f32>(0.0);
        let w0 = select(none, exp(scores.r0 - largest.x), there0);
        let w1 = select(none, exp(scores.r1 - largest.y), there1);
        let w2 = select(none, exp(scores.r2 - largest.z), there2);
        let w3 = select(none, exp(scores.r3 - largest.w), there3);
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
        for (var part = 0u; part < 4u; part++) {
            let stage = KEY_STAGES + part * GROUPS;
            store_values(next, local);
            workgroupBarrier();
            next = load_stage(task, stage + 1u, first_key, local);
            sums0 = weigh(sums0, part, row, lane);
            workgroupBarrier();
#ifdef DIMS_64
            store_values(next, local);
            workgroupBarrier();
            next = load_stage(task, stage + 2u, first_key, local);
            sums1 = weigh(sums1, part, row, lane);
            workgroupBarrier();
#endif
#ifdef DIMS_128
            store_values(next, local);
            workgroupBarrier();
            next = load_stage(task, stage + 3u, first_key, local);
            sums2 = weigh(sums2, part, row, lane);
            workgroupBarrier();
#endif
#ifdef DIMS_192
            store_values(next, local);
            workgroupBarrier();
            next = load_stage(task, stage + 4u, first_key, local);
            sums3 = weigh(sums3, part, row, lane);
            workgroupBarrier();
#endif
        }
    }
    scatter_sum(total, row, lane);
    workgroupBarrier();
    let by = vec4<f32>(1.0) / select(gather_sum(row), vec4<f32>(1.0), seen == vec4<u32>(0u));
    store_rows(task, row, lane, scaled(sums0, by));
#ifdef DIMS_64
    store_rows(task, row, 16u + lane, scaled(sums1, by));
#endif
#ifdef DIMS_128
    store_rows(task, row, 32u + lane, scaled(sums2, by));
#endif
#ifdef DIMS_192
    store_rows(task, row, 48u + lane, scaled(sums3, by));
#endif
}
