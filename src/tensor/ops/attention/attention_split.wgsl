// One workgroup per token, split and four query heads that share a key-value head, so that keys and values are read once for
// the four. In a step it takes POSITIONS positions: four invocations score one position for all four heads, and then each
// invocation sums four dimensions of the values, over its share of the positions. Reads come in fours that do not wait for
// each other: for one token, waiting takes most of the time.
struct Params { heads: u32, kv_heads: u32, head_dim: u32, capacity: u32, scale: f32, splits: u32, window: u32, softcap: f32 }

@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> k_cache: array<CacheVector>;
@group(0) @binding(2) var<storage, read> v_cache: array<CacheVector>;
@group(0) @binding(3) var<storage, read> state: array<u32>;
@group(0) @binding(4) var<storage, read_write> sums: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> totals: array<vec2<f32>>;
@group(0) @binding(20) var<uniform> params: Params;

#import "splits"
#import "window"
#import "placement"
#import "subgroup_sum"
#import "kv_vectors"
#ifdef SOFTCAP
#import "softcap"
#endif

const LOWEST = -3.0e38;
const POSITIONS = WORKGROUP / 4u;
// Vectors of four dimensions in a head.
const VECTORS = HEAD_DIM / 4u;
// Invocations are [share of the positions][vector] in the sums over values; the rest idle.
const SHARES = WORKGROUP / VECTORS;
// Subgroups, or parts of them, of a workgroup.
const TEAMS = WORKGROUP / LANES;

// [head][vector]; heads beyond the last are zero.
var<workgroup> queries: array<vec4<f32>, 4u * VECTORS>;
// Of the four heads, by position.
var<workgroup> weights: array<vec4<f32>, POSITIONS>;
// Of each team: the largest score, and the sum of the weights.
var<workgroup> team_largest: array<vec4<f32>, TEAMS>;
var<workgroup> team_totals: array<vec4<f32>, TEAMS>;
// Sums of each invocation for two heads.
var<workgroup> shares: array<vec4<f32>, 2u * WORKGROUP>;

// The place of a vector of four columns in SoA.
fn soa_vector(head: u32, vector: u32) -> u32 {
    let at = head * VECTORS + vector;
    return at % 8u * (params.heads * VECTORS / 8u) + at / 8u;
}

// The scores of a key's vector, one per head; zero for a vector past the end.
fn scores_of(key: vec4<f32>, vector: u32) -> vec4<f32> {
    let v = min(vector, VECTORS - 1u);
    let products = vec4<f32>(
        dot(key, queries[v]), dot(key, queries[v + VECTORS]),
        dot(key, queries[v + 2u * VECTORS]), dot(key, queries[v + 3u * VECTORS]),
    );
    return select(vec4<f32>(0.0), products, vector < VECTORS);
}

// The same four dimensions of four positions.
struct Values { v0: vec4<f32>, v1: vec4<f32>, v2: vec4<f32>, v3: vec4<f32> }

// Positions past the end repeat the last one.
fn read_values(step: u32, end: u32, p: u32, kv_vectors: u32, value_at: u32) -> Values {
    let last = end - 1u;
    return Values(
        value_vector(min(step + p, last) * kv_vectors + value_at),
        value_vector(min(step + p + SHARES, last) * kv_vectors + value_at),
        value_vector(min(step + p + 2u * SHARES, last) * kv_vectors + value_at),
        value_vector(min(step + p + 3u * SHARES, last) * kv_vectors + value_at),
    );
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let kv_head = group.x;
    let split = group.y;
    let heads_per_kv = params.heads / params.kv_heads;
    let groups_of_four = (heads_per_kv + 3u) / 4u;
    let token = group.z / groups_of_four;
    let first_of_group = group.z % groups_of_four * 4u;
    let length = length_of(token);
    let first = window_begin(length);
    let positions = positions_per_split(length - first, params.splits, TILE);
    let begin = first + split * positions;
    let end = min(begin + positions, length);
    let first_head = kv_head * heads_per_kv + first_of_group;
    let own_heads = min(heads_per_kv - first_of_group, 4u);
    // Outputs are [token][split].
    let first_total = (token * params.splits + split) * params.heads;
    let first_sum = first_total * VECTORS;
    if begin >= end {
        for (var i = local; i < own_heads * VECTORS; i += WORKGROUP) {
            sums[first_sum + soa_vector(first_head, i)] = vec4<f32>(0.0);
        }
        if local < own_heads {
            totals[first_total + first_head + local] = vec2<f32>(0.0);
        }
        return;
    }
    let kv_head_vectors = cached_head(HEAD_DIM) / 4u;
    let kv_vectors = params.kv_heads * kv_head_vectors;
    let slot = local / 4u;
    let part = local % 4u;
    let team = local / LANES;
    let share = local / VECTORS;
    let kv_head_at = first_row_of(token) * kv_vectors + kv_head * kv_head_vectors;
    let value_at = kv_head_at + local % VECTORS;

    var sum0 = vec4<f32>(0.0);
    var sum1 = vec4<f32>(0.0);
    var sum2 = vec4<f32>(0.0);
    var sum3 = vec4<f32>(0.0);
    // Of the four heads.
    var largest = vec4<f32>(LOWEST);
    var total = vec4<f32>(0.0);
    for (var step = begin; step < end; step += POSITIONS) {
        let is_there = step + slot < end;
        // Positions past the end repeat the last one, and get no weight.
        let key_at = min(step + slot, end - 1u) * kv_vectors + kv_head_at;
        // The first reads of keys and of values start before the first barrier.
        let key0 = key_vector(key_at + min(part, VECTORS - 1u));
        let key1 = key_vector(key_at + min(part + 4u, VECTORS - 1u));
        let key2 = key_vector(key_at + min(part + 8u, VECTORS - 1u));
        let key3 = key_vector(key_at + min(part + 12u, VECTORS - 1u));
        let first_values = read_values(step, end, share, kv_vectors, value_at);
        if step == begin {
            for (var i = local; i < 4u * VECTORS; i += WORKGROUP) {
                queries[i] = vec4<f32>(0.0);
                if i < own_heads * VECTORS {
                    queries[i] = q[(token * params.heads + first_head) * VECTORS + i] * params.scale;
                }
            }
            workgroupBarrier();
        }
        var score = scores_of(key0, part) + scores_of(key1, part + 4u) + scores_of(key2, part + 8u)
            + scores_of(key3, part + 12u);
        for (var i = part + 16u; i < VECTORS; i += 16u) {
            let key4 = key_vector(key_at + i);
            let key5 = key_vector(key_at + min(i + 4u, VECTORS - 1u));
            let key6 = key_vector(key_at + min(i + 8u, VECTORS - 1u));
            let key7 = key_vector(key_at + min(i + 12u, VECTORS - 1u));
            score += scores_of(key4, i) + scores_of(key5, i + 4u) + scores_of(key6, i + 8u) + scores_of(key7, i + 12u);
        }
        score += subgroupShuffleXor(score, 1u);
        score += subgroupShuffleXor(score, 2u);
#ifdef SOFTCAP
        score = soft_capped(score);
#endif
        score = select(vec4<f32>(LOWEST), score, is_there);
        var team_max = score;
        for (var lanes = 4u; lanes < LANES; lanes *= 2u) {
            team_max = max(team_max, subgroupShuffleXor(team_max, lanes));
        }
        if local % LANES == 0u {
            team_largest[team] = team_max;
        }
        workgroupBarrier();
        var now = largest;
        for (var t = 0u; t < TEAMS; t++) {
            now = max(now, team_largest[t]);
        }
        let keep = exp(largest - now);
        largest = now;
        let weight = select(vec4<f32>(0.0), exp(score - now), is_there);
        if part == 0u {
            weights[slot] = weight;
        }
        var team_total = weight;
        for (var lanes = 4u; lanes < LANES; lanes *= 2u) {
            team_total += subgroupShuffleXor(team_total, lanes);
        }
        if local % LANES == 0u {
            team_totals[team] = team_total;
        }
        workgroupBarrier();
        total *= keep;
        for (var t = 0u; t < TEAMS; t++) {
            total += team_totals[t];
        }
        sum0 *= keep.x;
        sum1 *= keep.y;
        sum2 *= keep.z;
        sum3 *= keep.w;
        if share < SHARES {
            var values = first_values;
            for (var p = share; p < POSITIONS; p += 4u * SHARES) {
                if p > share {
                    values = read_values(step, end, p, kv_vectors, value_at);
                }
                let none = vec4<f32>(0.0);
                let p1 = p + SHARES;
                let p2 = p + 2u * SHARES;
                let p3 = p + 3u * SHARES;
                let weight0 = weights[p];
                let weight1 = select(none, weights[min(p1, POSITIONS - 1u)], p1 < POSITIONS);
                let weight2 = select(none, weights[min(p2, POSITIONS - 1u)], p2 < POSITIONS);
                let weight3 = select(none, weights[min(p3, POSITIONS - 1u)], p3 < POSITIONS);
                sum0 += weight0.x * values.v0 + weight1.x * values.v1 + weight2.x * values.v2 + weight3.x * values.v3;
                sum1 += weight0.y * values.v0 + weight1.y * values.v1 + weight2.y * values.v2 + weight3.y * values.v3;
                sum2 += weight0.z * values.v0 + weight1.z * values.v1 + weight2.z * values.v2 + weight3.z * values.v3;
                sum3 += weight0.w * values.v0 + weight1.w * values.v1 + weight2.w * values.v2 + weight3.w * values.v3;
            }
        }
        // The next step overwrites what others may still read.
        workgroupBarrier();
    }

    if local < own_heads {
        totals[first_total + first_head + local] = vec2<f32>(largest[local], total[local]);
    }
    shares[local] = sum0;
    shares[WORKGROUP + local] = sum1;
    workgroupBarrier();
    store_sums(local, 0u, own_heads, first_head, first_sum);
    workgroupBarrier();
    shares[local] = sum2;
    shares[WORKGROUP + local] = sum3;
    workgroupBarrier();
    store_sums(local, 2u, own_heads, first_head, first_sum);
}

// Adds up the shares of two heads.
fn store_sums(local: u32, first: u32, own_heads: u32, first_head: u32, first_sum: u32) {
    for (var i = local; i < 2u * VECTORS; i += WORKGROUP) {
        let head = first + i / VECTORS;
        if head < own_heads {
            let at = i / VECTORS * WORKGROUP + i % VECTORS;
            var all = vec4<f32>(0.0);
            for (var s = 0u; s < SHARES; s++) {
                all += shares[at + s * VECTORS];
            }
            sums[first_sum + soa_vector(first_head + head, i % VECTORS)] = all;
        }
    }
}
