// A workgroup computes RANKS ranks of TOKENS tokens. Every invocation takes vectors of four columns.
struct Params { tokens: u32, columns: u32, blocks: u32, ranks: u32, adapters: u32, epsilon: f32, head_dim: u32, tile: u32, capacity: u32 }

@group(0) @binding(10) var<storage, read> down: array<vec4<u32>>;
@group(0) @binding(FACTORS_BINDING) var<storage, read> factors: array<vec2<u32>>;
@group(0) @binding(SCALES_BINDING) var<storage, read> scales: array<f32>;
@group(0) @binding(STATE_BINDING) var<storage, read> state: array<u32>;
@group(0) @binding(OUT_BINDING) var<storage, read_write> h: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "subgroup_sum"

#ifdef MERGED
#import "merged"
#endif
#ifdef NORMED
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> norm: array<vec4<f32>>;

// The mean that is subtracted, and the factor.
var<private> normal: vec2<f32>;

fn sum_of_squares(mean: f32, local: u32, slot: u32) -> f32 {
    var sum = vec4<f32>(0.0);
    for (var i = local; i < params.blocks * 8u; i += WORKGROUP) {
        sum += (x[i] - mean) * (x[i] - mean);
    }
    return dot(sum_over_team(sum, local, slot), vec4<f32>(1.0));
}

fn prepare(local: u32) {
    normal = vec2<f32>(0.0, 1.0);
#ifdef LAYER_NORM
    var sum = vec4<f32>(0.0);
    for (var i = local; i < params.blocks * 8u; i += WORKGROUP) {
        sum += x[i];
    }
    normal.x = dot(sum_over_team(sum, local, 1u), vec4<f32>(1.0)) / f32(params.columns);
#endif
#ifdef DIVIDED
    normal.y = inverseSqrt(sum_of_squares(normal.x, local, 0u) / f32(params.columns) + params.epsilon);
#ifdef TEAMS_OF_LANES
    // The next sum writes what others may still read.
    workgroupBarrier();
#endif
#endif
}

fn input(token: u32, i: u32) -> vec4<f32> {
#ifdef UNNORMED
    return x[i];
#else
#ifdef LAYER_NORM
    return (x[i] - normal.x) * normal.y * norm[i] + norm[params.blocks * 8u + i];
#else
    return x[i] * normal.y * norm[i];
#endif
#endif
}
#endif
#ifdef MERGED
var<private> splits: u32;

fn prepare(local: u32) {
    splits = splits_of(min(state[0] + 1u, params.capacity), SPLITS, params.tile);
}

fn input(token: u32, i: u32) -> vec4<f32> {
    return merged(i, splits);
}
#endif
#ifdef VECTORS
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;

fn prepare(local: u32) {}

fn input(token: u32, i: u32) -> vec4<f32> {
    return x[min(token, params.tokens - 1u) * (params.columns / 4u) + i];
}
#endif
#ifdef RAGGED
// Rows that are no whole vectors. A's are padded with zeros.
@group(0) @binding(0) var<storage, read> x: array<f32>;

fn prepare(local: u32) {}

fn input(token: u32, i: u32) -> vec4<f32> {
    var vector = vec4<f32>(0.0);
    for (var k = 0u; k < 4u; k++) {
        if i * 4u + k < params.columns {
            vector[k] = x[min(token, params.tokens - 1u) * params.columns + i * 4u + k];
        }
    }
    return vector;
}
#endif

// Four columns of a rank, of which the first is a multiple of 4.
fn down_vector(rank: u32, column: u32) -> vec4<f32> {
    let eight = down[(min(rank, params.ranks - 1u) * params.blocks * 32u + column) / 8u];
    let four = select(eight.xy, eight.zw, column % 8u != 0u);
    return vec4<f32>(unpack2x16float(four.x), unpack2x16float(four.y));
}

// The factor of a rank in the sequence of a token.
fn factor_of(token: u32, rank: u32) -> f32 {
#ifdef MERGED
    // A sequence that has stopped has nothing to merge.
    if state[2] != 0u {
        return 0.0;
    }
#endif
#ifdef SEQUENCES
    let sequence = state[token * 4u + 3u];
#else
    let sequence = state[3];
#endif
    let of_rank = factors[min(rank, params.ranks - 1u)];
    return scales[sequence * params.adapters + of_rank.x] * bitcast<f32>(of_rank.y);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let first_rank = group.x * RANKS;
    let first_token = group.y * TOKENS;
    // Early, so that these reads wait together with the others.
    let rank = first_rank + local % RANKS;
    var rank_factors: array<f32, TOKENS>;
    for (var t = 0u; t < TOKENS; t++) {
        rank_factors[t] = factor_of(min(first_token + t, params.tokens - 1u), rank);
    }
    prepare(local);
    var products: array<vec4<f32>, TOKENS>;
    for (var i = local; i < params.blocks * 8u; i += WORKGROUP) {
#ifdef SOA
        let column = i % params.blocks * 32u + i / params.blocks * 4u;
#else
        let column = i * 4u;
#endif
        let of_first = down_vector(first_rank, column);
#ifdef FOUR_RANKS
        let of_second = down_vector(first_rank + 1u, column);
        let of_third = down_vector(first_rank + 2u, column);
        let of_fourth = down_vector(first_rank + 3u, column);
#endif
        for (var t = 0u; t < TOKENS; t++) {
            let v = input(first_token + t, i);
#ifdef FOUR_RANKS
            products[t] += vec4<f32>(dot(v, of_first), dot(v, of_second), dot(v, of_third), dot(v, of_fourth));
#else
            products[t].x += dot(v, of_first);
#endif
        }
    }
    for (var t = 0u; t < TOKENS; t++) {
        let of_token = sum_over_team(products[t], local, t % 2u);
        let token = first_token + t;
        if local < RANKS && token < params.tokens && rank < params.ranks {
            // A sequence without the adapter gets nothing of it, whatever the product is.
            h[token * params.ranks + rank] = select(of_token[local] * rank_factors[t], 0.0, rank_factors[t] == 0.0);
        }
#ifdef TEAMS_OF_LANES
        // The sum after the next writes what others may still read.
        if t % 2u == 1u {
            workgroupBarrier();
        }
#endif
    }
}
