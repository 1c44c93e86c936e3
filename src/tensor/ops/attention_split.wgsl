// One workgroup per key-value head and split. In each step of WORKGROUP positions, an invocation scores one position for all
// query heads of the group, and then sums one dimension of the values for all of them, over its share of the positions. So keys
// and values are read once for the whole group of heads. Heads are taken four at a time, as vec4; QUADS of them.
struct Params { heads: u32, kv_heads: u32, head_dim: u32, capacity: u32, scale: f32, splits: u32 }

@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> k_cache: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> v_cache: array<f32>;
@group(0) @binding(3) var<storage, read> state: array<u32>;
@group(0) @binding(4) var<storage, read_write> sums: array<f32>;
@group(0) @binding(5) var<storage, read_write> totals: array<vec2<f32>>;
@group(0) @binding(20) var<uniform> params: Params;

#import "planar"
#import "splits"
#import "subgroup_sum"

const LOWEST = -3.0e38;
// Subgroups, or parts of them, of a workgroup.
const TEAMS = WORKGROUP / LANES;

// Queries as [dimension][quad], scores and then weights as [quad][position], later sums as [quad][invocation].
var<workgroup> queries: array<vec4<f32>, HEAD_DIM * QUADS>;
var<workgroup> scores: array<vec4<f32>, WORKGROUP * QUADS>;
// Of each team: the largest score, and the sum of the weights.
var<workgroup> team_largest: array<vec4<f32>, TEAMS * QUADS>;
var<workgroup> team_totals: array<vec4<f32>, TEAMS * QUADS>;

fn max_over_lanes(value: vec4<f32>) -> vec4<f32> {
    var largest = value;
    for (var step = LANES / 2u; step > 0u; step /= 2u) {
        largest = max(largest, subgroupShuffleXor(largest, step));
    }
    return largest;
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
    let blocks = params.heads * HEAD_DIM / 32u;
    if begin >= end {
        for (var i = local; i < heads_per_kv * HEAD_DIM; i += WORKGROUP) {
            sums[split * blocks * 32u + planar_index(first_head * HEAD_DIM + i, blocks)] = 0.0;
        }
        if local < heads_per_kv {
            totals[split * params.heads + first_head + local] = vec2<f32>(0.0);
        }
        return;
    }
    let kv_dim = params.kv_heads * HEAD_DIM;

    for (var i = local; i < HEAD_DIM * QUADS; i += WORKGROUP) {
        let d = i / QUADS;
        let head = (i % QUADS) * 4u;
        var four = vec4<f32>(0.0);
        for (var h = 0u; h < 4u; h++) {
            if head + h < heads_per_kv {
                four[h] = q[(first_head + head + h) * HEAD_DIM + d] * params.scale;
            }
        }
        queries[i] = four;
    }
    workgroupBarrier();

    // In the sums over values, invocations are [share][dimension]; those that are left over idle.
    let shares = WORKGROUP / HEAD_DIM;
    let share = local / HEAD_DIM;
    let dimension = local % HEAD_DIM;
    let team = local / LANES;

    var sum: array<vec4<f32>, QUADS>;
    var largest: array<vec4<f32>, QUADS>;
    var total: array<vec4<f32>, QUADS>;
    for (var i = 0u; i < QUADS; i++) {
        sum[i] = vec4<f32>(0.0);
        largest[i] = vec4<f32>(LOWEST);
        total[i] = vec4<f32>(0.0);
    }
    for (var tile = begin; tile < end; tile += WORKGROUP) {
        let position = tile + local;
        let is_there = position < end;
        var score: array<vec4<f32>, QUADS>;
        for (var i = 0u; i < QUADS; i++) {
            score[i] = vec4<f32>(0.0);
        }
        if is_there {
            let at = (position * kv_dim + kv_head * HEAD_DIM) / 4u;
            for (var d = 0u; d < HEAD_DIM / 4u; d++) {
                let key = k_cache[at + d];
                for (var i = 0u; i < QUADS; i++) {
                    score[i] += key.x * queries[(d * 4u) * QUADS + i] + key.y * queries[(d * 4u + 1u) * QUADS + i]
                        + key.z * queries[(d * 4u + 2u) * QUADS + i] + key.w * queries[(d * 4u + 3u) * QUADS + i];
                }
            }
        }
        for (var i = 0u; i < QUADS; i++) {
            score[i] = select(vec4<f32>(LOWEST), score[i], is_there);
            let team_max = max_over_lanes(score[i]);
            if local % LANES == 0u {
                team_largest[team * QUADS + i] = team_max;
            }
        }
        workgroupBarrier();
        for (var i = 0u; i < QUADS; i++) {
            var now = largest[i];
            for (var t = 0u; t < TEAMS; t++) {
                now = max(now, team_largest[t * QUADS + i]);
            }
            let keep = exp(largest[i] - now);
            largest[i] = now;
            sum[i] *= keep;
            total[i] *= keep;
            let weight = select(vec4<f32>(0.0), exp(score[i] - now), is_there);
            scores[i * WORKGROUP + local] = weight;
            let team_total = sum_over_lanes(weight, local);
            if local % LANES == 0u {
                team_totals[team * QUADS + i] = team_total;
            }
        }
        workgroupBarrier();
        for (var i = 0u; i < QUADS; i++) {
            for (var t = 0u; t < TEAMS; t++) {
                total[i] += team_totals[t * QUADS + i];
            }
        }
        if share < shares {
            let count = min(WORKGROUP, end - tile);
            let first = tile * kv_dim + kv_head * HEAD_DIM + dimension;
            for (var p = share; p < count; p += shares) {
                let value = v_cache[first + p * kv_dim];
                for (var i = 0u; i < QUADS; i++) {
                    sum[i] += value * scores[i * WORKGROUP + p];
                }
            }
        }
        // The next step overwrites what others may still read.
        workgroupBarrier();
    }

    for (var i = 0u; i < QUADS; i++) {
        scores[i * WORKGROUP + local] = sum[i];
    }
    workgroupBarrier();
    if local < HEAD_DIM {
        for (var i = 0u; i < QUADS; i++) {
            var all = vec4<f32>(0.0);
            for (var s = 0u; s < shares; s++) {
                all += scores[i * WORKGROUP + s * HEAD_DIM + local];
            }
            for (var h = 0u; h < 4u; h++) {
                let head = i * 4u + h;
                if head < heads_per_kv {
                    let column = (first_head + head) * HEAD_DIM + local;
                    sums[split * blocks * 32u + planar_index(column, blocks)] = all[h];
                    if local == 0u {
                        totals[split * params.heads + first_head + head] = vec2<f32>(largest[i][h], total[i][h]);
                    }
                }
            }
        }
    }
}
