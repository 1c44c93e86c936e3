// A team of TEAM invocations computes two rows, which are a rope pair if rope rotates them. With a cache of q8_0, a workgroup
// computes the 16 pairs of a block, and quantises those for the cache.
#import "weight"

struct Params {
    columns: u32, blocks: u32, epsilon: f32,
    // Rows of the queries, of the keys (and as many of the values).
    q_rows: u32, kv_rows: u32,
    head_dim: u32,
    // Pairs of a head that are rotated.
    pairs: u32,
    capacity: u32,
    // The weight's first row among all rows of queries, keys and values; and the number of its rows.
    first_row: u32, rows: u32,
}

@group(0) @binding(2) var<storage, read> state: array<u32>;
#ifdef KEYS
@group(0) @binding(K_BINDING) var<storage, read_write> k_cache: array<CachePair>;
#endif
#ifdef VALUES
@group(0) @binding(V_BINDING) var<storage, read_write> v_cache: array<CachePair>;
#endif
#ifdef QUERIES
@group(0) @binding(Q_BINDING) var<storage, read_write> q: array<vec2<f32>>;
#endif
@group(0) @binding(20) var<uniform> params: Params;

#import "normed_rows"
#import "cos_sin"
#import "kv_cache"
#ifdef CACHE_Q8_0
#import "kv_store"

var<workgroup> block_pairs: array<vec2<f32>, 16>;
#endif

// The vectors after the norm's weight: rope's frequencies, then the biases.
fn vector(index: u32) -> f32 {
    let at = NORM_VECTORS * params.columns + index;
    return norm[at / 4u][at % 4u];
}

fn rows_of(pair: u32) -> vec2<u32> {
    let row = pair * 2u;
#ifndef INTERLEAVED
    if row < params.q_rows + params.kv_rows {
        let half = params.head_dim / 2u;
        let in_head = pair % half;
        if in_head < params.pairs {
            let first = pair / half * params.head_dim + in_head;
            return vec2<u32>(first, first + params.pairs);
        }
    }
#endif
    return vec2<u32>(row, row + 1u);
}

// The bias and rope for the two products of a pair.
fn turned_pair(rows: vec2<u32>, products: vec2<f32>) -> vec2<f32> {
    var values = products;
#ifdef BIAS
    values += vec2<f32>(vector(params.pairs + rows.x), vector(params.pairs + rows.y));
#endif
    let in_head = rows.x % params.head_dim;
#ifdef INTERLEAVED
    let pair = in_head / 2u;
#else
    let pair = in_head;
#endif
    if rows.x < params.q_rows + params.kv_rows && pair < params.pairs {
#ifdef SCALED
        let turn = cos_sin(f32(state[0]) * vector(pair)) * SCALE;
#else
        let turn = cos_sin(f32(state[0]) * vector(pair));
#endif
        values = vec2<f32>(values.x * turn.x - values.y * turn.y, values.x * turn.y + values.y * turn.x);
    }
    return values;
}

#ifdef CACHE_Q8_0
@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let lane = local % TEAM;
    let head_pairs = params.head_dim / 2u;
    let head_blocks = cached_head(params.head_dim) / 32u;
    let blocks = params.rows / params.head_dim * head_blocks;
    // Workgroups past the end repeat the last block.
    let block = min(group.y * groups.x + group.x, blocks - 1u);
    // Of all heads of queries, keys and values.
    let head = params.first_row / params.head_dim + block / head_blocks;
    let first_in_head = block % head_blocks * BLOCK_PAIRS;
    for (var first = 0u; first < BLOCK_PAIRS; first += WORKGROUP / TEAM) {
        let slot = first + local / TEAM;
        let in_head = first_in_head + slot;
        // The padding of a head repeats its last pair, so that every invocation takes part in the sum.
        let rows = rows_of(head * head_pairs + min(in_head, head_pairs - 1u));
        let sums = sum_normed_rows(vec4<u32>((rows - params.first_row) * params.blocks, 0u, 0u), lane, local);
        if lane == 0u {
            block_pairs[slot] = select(vec2<f32>(0.0), turned_pair(rows, sums.xy), in_head < head_pairs);
        }
#ifdef TEAMS_OF_LANES
        // The next sum writes what others may still read.
        workgroupBarrier();
#endif
    }
    workgroupBarrier();
    let q_heads = params.q_rows / params.head_dim;
    let kv_heads = params.kv_rows / params.head_dim;
#ifdef QUERIES
    if head < q_heads {
        if local < BLOCK_PAIRS && first_in_head + local < head_pairs {
            q[head * head_pairs + first_in_head + local] = block_pairs[local];
        }
        return;
    }
#endif
    if local < 8u && state[0] < params.capacity && state[2] == 0u {
        let kv_head = (head - q_heads) % kv_heads;
        let to = (state[0] * kv_heads + kv_head) * head_blocks + block % head_blocks;
#ifdef KEYS
        if head < q_heads + kv_heads {
            store_key_word(to, 0u, local);
            return;
        }
#endif
#ifdef VALUES
        store_value_word(to, 0u, local);
#endif
    }
}
#else
// The two numbers of a pair are neighbours in memory, whatever their rows.
fn store(pair: u32, values: vec2<f32>) {
    let q_pairs = params.q_rows / 2u;
    let kv_pairs = params.kv_rows / 2u;
#ifdef QUERIES
    if pair < q_pairs {
        q[pair] = values;
        return;
    }
#endif
    // A step that ran ahead past the end of the context must not wrap or clamp onto a real entry, and one past the end of the
    // text leaves the cache as it is.
    if state[0] < params.capacity && state[2] == 0u {
        let at = state[0] * kv_pairs + pair - q_pairs;
#ifdef KEYS
        if pair < q_pairs + kv_pairs {
            k_cache[at] = cache_pair(values);
            return;
        }
#endif
#ifdef VALUES
        v_cache[at - kv_pairs] = cache_pair(values);
#endif
    }
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let team = (group.y * groups.x + group.x) * (WORKGROUP / TEAM) + local / TEAM;
    let lane = local % TEAM;
    let all_pairs = params.rows / 2u;
    // Teams past the end repeat the last pair, so that every invocation takes part in the sum.
    let row_pair = params.first_row / 2u + min(team, all_pairs - 1u);
    let rows = rows_of(row_pair);
    let sums = sum_normed_rows(vec4<u32>((rows - params.first_row) * params.blocks, 0u, 0u), lane, local);
    if team >= all_pairs || lane != 0u {
        return;
    }
    store(row_pair, turned_pair(rows, sums.xy));
}
#endif
