// One workgroup per key-value head and split, so that keys and values are read once for the whole group of query heads. In a
// step it takes POSITIONS positions: four invocations score one position for all the heads, and then each invocation sums four
// dimensions of the values, over its share of the positions. Heads are taken four at a time, as vec4; QUADS of them.
struct Params { heads: u32, kv_heads: u32, head_dim: u32, capacity: u32, scale: f32, splits: u32 }

@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> k_cache: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> v_cache: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> state: array<u32>;
@group(0) @binding(4) var<storage, read_write> sums: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> totals: array<vec2<f32>>;
@group(0) @binding(20) var<uniform> params: Params;

#import "splits"
#import "subgroup_sum"

const LOWEST = -3.0e38;
const POSITIONS = WORKGROUP / 4u;
// Vectors of four dimensions in a head, and how many of them one of four invocations takes.
const VECTORS = HEAD_DIM / 4u;
const OWN_VECTORS = (VECTORS + 3u) / 4u;
// Invocations are [share of the positions][vector] in the sums over values; those that are left over idle.
const SHARES = WORKGROUP / VECTORS;
const SHARE_POSITIONS = (POSITIONS + SHARES - 1u) / SHARES;
// Subgroups, or parts of them, of a workgroup.
const TEAMS = WORKGROUP / LANES;

// [head][vector]; heads beyond the last are zero.
var<workgroup> queries: array<vec4<f32>, 4u * QUADS * VECTORS>;
// [quad][position]
var<workgroup> weights: array<vec4<f32>, QUADS * POSITIONS>;
// Of each team: the largest score, and the sum of the weights.
var<workgroup> team_largest: array<vec4<f32>, TEAMS * QUADS>;
var<workgroup> team_totals: array<vec4<f32>, TEAMS * QUADS>;
// Sums of each invocation for two heads.
var<workgroup> shares: array<vec4<f32>, 2u * WORKGROUP>;

// Where four columns stand in planes.
fn planar_vector(head: u32, vector: u32) -> u32 {
    let at = head * VECTORS + vector;
    return at % 8u * (params.heads * VECTORS / 8u) + at / 8u;
}

fn max_over_positions(value: vec4<f32>) -> vec4<f32> {
    var largest = value;
    for (var step = 4u; step < LANES; step *= 2u) {
        largest = max(largest, subgroupShuffleXor(largest, step));
    }
    return largest;
}

fn score_four(key: vec4<f32>, first: u32) -> vec4<f32> {
    return vec4<f32>(
        dot(key, queries[first]), dot(key, queries[first + VECTORS]),
        dot(key, queries[first + 2u * VECTORS]), dot(key, queries[first + 3u * VECTORS]),
    );
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let kv_head = group.x;
    let split = group.y;
    let length = min(state[0] + 1u, params.capacity);
    let positions = positions_per_split(length, params.splits, TILE);
    let begin = split * positions;
    let end = min(begin + positions, length);
    let heads_per_kv = params.heads / params.kv_heads;
    let first_head = kv_head * heads_per_kv;
    let first_sum = split * params.heads * VECTORS;
    if begin >= end {
        for (var i = local; i < heads_per_kv * VECTORS; i += WORKGROUP) {
            sums[first_sum + planar_vector(first_head, i)] = vec4<f32>(0.0);
        }
        if local < heads_per_kv {
            totals[split * params.heads + first_head + local] = vec2<f32>(0.0);
        }
        return;
    }
    let kv_vectors = params.kv_heads * VECTORS;
    for (var i = local; i < 4u * QUADS * VECTORS; i += WORKGROUP) {
        queries[i] = vec4<f32>(0.0);
        if i < heads_per_kv * VECTORS {
            queries[i] = q[first_head * VECTORS + i] * params.scale;
        }
    }
    workgroupBarrier();

    let slot = local / 4u;
    let part = local % 4u;
    let team = local / LANES;
    let share = local / VECTORS;
    let vector = local % VECTORS;

    // [quad * 4 + head of the quad]
    var sum: array<vec4<f32>, 4u * QUADS>;
    for (var i = 0u; i < 4u * QUADS; i++) {
        sum[i] = vec4<f32>(0.0);
    }
    var largest: array<vec4<f32>, QUADS>;
    var total: array<vec4<f32>, QUADS>;
    for (var i = 0u; i < QUADS; i++) {
        largest[i] = vec4<f32>(LOWEST);
        total[i] = vec4<f32>(0.0);
    }
    for (var step = begin; step < end; step += POSITIONS) {
        let is_there = step + slot < end;
        // Positions past the end repeat the last one, and get no weight.
        let at = min(step + slot, end - 1u) * kv_vectors + kv_head * VECTORS;
        var keys: array<vec4<f32>, OWN_VECTORS>;
        for (var i = 0u; i < OWN_VECTORS; i++) {
            keys[i] = k_cache[at + min(i * 4u + part, VECTORS - 1u)];
        }
        var score: array<vec4<f32>, QUADS>;
        for (var j = 0u; j < QUADS; j++) {
            score[j] = vec4<f32>(0.0);
            for (var i = 0u; i < OWN_VECTORS; i++) {
                let v = i * 4u + part;
                let products = score_four(keys[i], j * 4u * VECTORS + min(v, VECTORS - 1u));
                score[j] += select(vec4<f32>(0.0), products, v < VECTORS);
            }
            score[j] += subgroupShuffleXor(score[j], 1u);
            score[j] += subgroupShuffleXor(score[j], 2u);
            score[j] = select(vec4<f32>(LOWEST), score[j], is_there);
            let team_max = max_over_positions(score[j]);
            if local % LANES == 0u {
                team_largest[team * QUADS + j] = team_max;
            }
        }
        workgroupBarrier();
        for (var j = 0u; j < QUADS; j++) {
            var now = largest[j];
            for (var t = 0u; t < TEAMS; t++) {
                now = max(now, team_largest[t * QUADS + j]);
            }
            let keep = exp(largest[j] - now);
            largest[j] = now;
            total[j] *= keep;
            sum[j * 4u] *= keep.x;
            sum[j * 4u + 1u] *= keep.y;
            sum[j * 4u + 2u] *= keep.z;
            sum[j * 4u + 3u] *= keep.w;
            var weight = select(vec4<f32>(0.0), exp(score[j] - now), is_there && part == 0u);
            if part == 0u {
                weights[j * POSITIONS + slot] = weight;
            }
            for (var lanes = 4u; lanes < LANES; lanes *= 2u) {
                weight += subgroupShuffleXor(weight, lanes);
            }
            if local % LANES == 0u {
                team_totals[team * QUADS + j] = weight;
            }
        }
        workgroupBarrier();
        for (var j = 0u; j < QUADS; j++) {
            for (var t = 0u; t < TEAMS; t++) {
                total[j] += team_totals[t * QUADS + j];
            }
        }
        if share < SHARES {
            for (var i = 0u; i < SHARE_POSITIONS; i++) {
                let p = share + i * SHARES;
                if p < POSITIONS {
                    let value = v_cache[min(step + p, end - 1u) * kv_vectors + kv_head * VECTORS + vector];
                    for (var j = 0u; j < QUADS; j++) {
                        let weight = weights[j * POSITIONS + p];
                        sum[j * 4u] += weight.x * value;
                        sum[j * 4u + 1u] += weight.y * value;
                        sum[j * 4u + 2u] += weight.z * value;
                        sum[j * 4u + 3u] += weight.w * value;
                    }
                }
            }
        }
        // The next step overwrites what others may still read.
        workgroupBarrier();
    }

    for (var j = 0u; j < QUADS; j++) {
        if local == j {
            for (var h = 0u; h < 4u; h++) {
                if j * 4u + h < heads_per_kv {
                    totals[split * params.heads + first_head + j * 4u + h] = vec2<f32>(largest[j][h], total[j][h]);
                }
            }
        }
    }
    for (var h = 0u; h < 4u * QUADS; h += 2u) {
        shares[local] = sum[h];
        shares[WORKGROUP + local] = sum[h + 1u];
        workgroupBarrier();
        for (var i = local; i < 2u * VECTORS; i += WORKGROUP) {
            let head = h + i / VECTORS;
            if head < heads_per_kv {
                var all = vec4<f32>(0.0);
                for (var s = 0u; s < SHARES; s++) {
                    all += shares[i / VECTORS * WORKGROUP + s * VECTORS + i % VECTORS];
                }
                sums[first_sum + planar_vector(first_head + head, i % VECTORS)] = all;
            }
        }
        workgroupBarrier();
    }
}
