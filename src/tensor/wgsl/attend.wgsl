// The attention of one head's query over a run of positions, by a team of LANES invocations. Each lane holds every LANES-th
// dimension of the query and of the sums; four positions are scored at once, because the sum over lanes is of a vec4. An online
// softmax (Milakov, Gimelshein 2018).
//
// The kernel binds `q`, and `k_cache` and `v_cache` as arrays of CacheWord, and defines `params.heads`, `params.kv_heads`,
// `params.head_dim`, `params.scale`, with SOFTCAP `params.softcap`, with SLOPES or DISTANCES `per_head`, and
// with DISENTANGLED `distance_keys`, `distance_queries` and `distance_rows`.
#import "subgroup_sum"
#import "kv_cache"
#ifdef SOFTCAP
#import "softcap"
#endif

const LOWEST = -3.0e38;

#ifdef CACHE_Q8_0
fn key(index: u32) -> f32 {
    return scaled_number(k_cache[vector_word(index / 4u)], k_cache[scales_word(index / 4u)], index);
}

#ifndef LATENT
fn value(index: u32) -> f32 {
    return scaled_number(v_cache[vector_word(index / 4u)], v_cache[scales_word(index / 4u)], index);
}
#endif
#else
fn key(index: u32) -> f32 {
    return cached_number(k_cache[cached_word(index)], index);
}

#ifndef LATENT
fn value(index: u32) -> f32 {
    return cached_number(v_cache[cached_word(index)], index);
}
#endif
#endif

#ifdef LATENT
fn value_dim() -> u32 {
    return params.rank;
}

fn value(index: u32) -> f32 {
    return key(index + params.head_dim - params.rank);
}
#else
fn value_dim() -> u32 {
    return params.head_dim;
}
#endif

struct Attended {
    // Σ exp(score - largest) · value.
    sums: array<f32, DIMS_PER_LANE>,
    largest: f32,
    // Σ exp(score - largest).
    total: f32,
}

// `item` is token · heads + head; there is at least one position from `begin` to before `end`, counted from a row of the caches.
fn attend(item: u32, first_row: u32, begin: u32, end: u32, local: u32) -> Attended {
    let kv_head_dim = cached_head(params.head_dim);
    let kv_dim = params.kv_heads * kv_head_dim;
    let kv_start = first_row * kv_dim + item % params.heads / (params.heads / params.kv_heads) * kv_head_dim;
    var query: array<f32, DIMS_PER_LANE>;
    var sums: array<f32, DIMS_PER_LANE>;
    for (var i = 0u; i < DIMS_PER_LANE; i++) {
        let d = local + i * LANES;
        query[i] = 0.0;
        sums[i] = 0.0;
        if d < params.head_dim {
            query[i] = q[item * params.head_dim + d] * params.scale;
        }
    }

    var largest = LOWEST;
    var total = 0.0;
    for (var p = begin; p < end; p += 4u) {
        // Positions past the end repeat the last one, and get no weight.
        let last = end - 1u;
        let at0 = min(p, last) * kv_dim + kv_start;
        let at1 = min(p + 1u, last) * kv_dim + kv_start;
        let at2 = min(p + 2u, last) * kv_dim + kv_start;
        let at3 = min(p + 3u, last) * kv_dim + kv_start;
        var scores = vec4<f32>(0.0);
#ifdef DISENTANGLED
        // The rows of the distances from the positions to the query's own.
        let before_query = i32(item / params.heads) - vec4<i32>(i32(p), i32(p) + 1, i32(p) + 2, i32(p) + 3);
        let of_distances = vec4<u32>(clamp(before_query, vec4<i32>(-i32(REACH)), vec4<i32>(i32(REACH))) + vec4<i32>(i32(REACH)));
        let rows = vec4<u32>(distance_rows[of_distances.x], distance_rows[of_distances.y], distance_rows[of_distances.z], distance_rows[of_distances.w])
            * params.heads * params.head_dim + vec4<u32>(item % params.heads * params.head_dim);
#endif
        for (var i = 0u; i < DIMS_PER_LANE; i++) {
            let d = local + i * LANES;
            if d < params.head_dim {
                let keys = vec4<f32>(key(at0 + d), key(at1 + d), key(at2 + d), key(at3 + d));
#ifdef DISENTANGLED
                let of_rows = rows + vec4<u32>(d);
                let keys_of = vec4<f32>(distance_keys[of_rows.x], distance_keys[of_rows.y], distance_keys[of_rows.z], distance_keys[of_rows.w]);
                let queries_of =
                    vec4<f32>(distance_queries[of_rows.x], distance_queries[of_rows.y], distance_queries[of_rows.z], distance_queries[of_rows.w]);
                scores += query[i] * (keys + keys_of) + keys * queries_of * params.scale;
#else
                scores += query[i] * keys;
#endif
            }
        }
        scores = sum_over_lanes(scores, local);
#ifdef SOFTCAP
        scores = soft_capped(scores);
#endif
#ifdef SLOPES
        // ALiBi: the further back a position is, the less it counts. `end` is one past the query's own.
        let back = vec4<f32>(f32(last - min(p, last)), f32(last - min(p + 1u, last)), f32(last - min(p + 2u, last)), f32(last - min(p + 3u, last)));
        scores -= per_head[item % params.heads] * back;
#endif
#ifdef DISTANCES
        // What the distance from the query's own position adds.
#ifdef SPANS
        let query_at = i32(item / params.heads);
#else
        let query_at = i32(last);
#endif
        let first_of_head = (item % params.heads) * (2u * REACH + 1u) + REACH;
        let distances = clamp(vec4<i32>(i32(p), i32(p) + 1, i32(p) + 2, i32(p) + 3) - query_at, vec4<i32>(-i32(REACH)), vec4<i32>(i32(REACH)));
        let at_distances = vec4<u32>(vec4<i32>(i32(first_of_head)) + distances);
        scores += vec4<f32>(per_head[at_distances.x], per_head[at_distances.y], per_head[at_distances.z], per_head[at_distances.w]);
#endif
        let is_there = vec4<u32>(p, p + 1u, p + 2u, p + 3u) < vec4<u32>(end);
        scores = select(vec4<f32>(LOWEST), scores, is_there);

        let before = largest;
        largest = max(largest, max(max(scores.x, scores.y), max(scores.z, scores.w)));
        let keep = exp(before - largest);
        let weights = select(vec4<f32>(0.0), exp(scores - largest), is_there);
        total = total * keep + weights.x + weights.y + weights.z + weights.w;
        for (var i = 0u; i < DIMS_PER_LANE; i++) {
            let d = local + i * LANES;
            if d < value_dim() {
                let values = vec4<f32>(value(at0 + d), value(at1 + d), value(at2 + d), value(at3 + d));
                sums[i] = sums[i] * keep + dot(weights, values);
            }
        }
    }
    return Attended(sums, largest, total);
}
