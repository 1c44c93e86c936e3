// A workgroup takes ROWS elements of a head's values through the tokens of a run. LANES neighbouring invocations share the row of the state that
// belongs to one of them, in registers: each has every LANES-th word of it. CHUNK tokens at a time are in workgroup memory, and the next ones on
// their way in registers, since a token's latency is what all of a prompt waits for.
//
// With S the state before a token, decay d, rate b: what S knows of the key is d · S k, the change is b (v − d · S k) kᵀ, and what is read is
// d · S q + b (v − d · S k) (k·q). So one sum over the lanes is enough.
#import "activate"
#import "soa"
#import "subgroup_sum"

struct Params {
    items: u32, heads: u32, key_heads: u32, tokens: u32,
    gate_columns: u32, gate_first: u32, beta_columns: u32, beta_first: u32, alpha_columns: u32, alpha_first: u32,
    state_len: u32,
    epsilon: f32,
}

@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> gate: array<f32>;
@group(0) @binding(2) var<storage, read> beta: array<f32>;
@group(0) @binding(3) var<storage, read> alpha: array<f32>;
// For each head the factor of the decay, then its bias, then the weights of the norm.
@group(0) @binding(4) var<storage, read> vectors: array<f32>;
@group(0) @binding(5) var<storage, read> position: array<u32>;
// Of each head [WORDS, VALUE] words of four elements.
@group(0) @binding(6) var<storage, read_write> state: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "delta_rates"

// Words of a lane.
const OWN = WORDS / LANES;
// Of a chunk, words of queries and keys, and of those what an invocation loads.
const STAGED = 2u * CHUNK * WORDS;
const LOADS = (STAGED + WORKGROUP - 1u) / WORKGROUP;
// The same of values, whose rows are whole words.
const VALUE_WORDS = CHUNK * ROWS / 4u;
const VALUE_LOADS = (VALUE_WORDS + WORKGROUP - 1u) / WORKGROUP;

// [token][query, key][word]
var<workgroup> queries_keys: array<vec4<f32>, STAGED>;
var<workgroup> values: array<vec4<f32>, VALUE_WORDS>;
// [token]: decay and rate.
var<workgroup> rates: array<vec2<f32>, CHUNK>;
#ifdef NORMED
// Of tokens with even and with odd numbers, so that one barrier for each token is enough.
var<workgroup> squares: array<f32, 2u * ROWS>;
#endif

struct Chunk { words: array<vec4<f32>, LOADS>, values: array<vec4<f32>, VALUE_LOADS>, rates: vec2<f32> }

// The work of this workgroup.
struct Place { row: u32, tokens: u32, head: u32, key_head: u32, first_value: u32 }

// What an invocation loads of the chunk that begins at `first`; tokens past the end repeat the last one.
fn load_chunk(chunk: ptr<function, Chunk>, place: Place, first: u32, local: u32) {
    let words_of_token = params.key_heads * 2u * WORDS + params.heads * (VALUE / 4u);
    let last = place.tokens - 1u;
    for (var i = 0u; i < LOADS; i++) {
        let at = min(local + i * WORKGROUP, STAGED - 1u);
        let row = place.row + min(first + at / (2u * WORDS), last);
        // Keys come after all queries.
        let of_keys = at / WORDS % 2u * params.key_heads;
        (*chunk).words[i] = qkv[row * words_of_token + (of_keys + place.key_head) * WORDS + at % WORDS];
    }
    for (var i = 0u; i < VALUE_LOADS; i++) {
        let at = min(local + i * WORKGROUP, VALUE_WORDS - 1u);
        let row = place.row + min(first + at / (ROWS / 4u), last);
        let word = min(place.first_value / 4u + at % (ROWS / 4u), VALUE / 4u - 1u);
        (*chunk).values[i] = qkv[row * words_of_token + params.key_heads * 2u * WORDS + place.head * (VALUE / 4u) + word];
    }
    if local < CHUNK {
        let row = place.row + min(first + local, last);
        (*chunk).rates = vec2<f32>(decay_of(row, place.head), rate_of(row, place.head));
    }
}

fn store_chunk(chunk: ptr<function, Chunk>, local: u32) {
    for (var i = 0u; i < LOADS; i++) {
        let at = local + i * WORKGROUP;
        if at < STAGED {
            queries_keys[at] = (*chunk).words[i];
        }
    }
    for (var i = 0u; i < VALUE_LOADS; i++) {
        let at = local + i * WORKGROUP;
        if at < VALUE_WORDS {
            values[at] = (*chunk).values[i];
        }
    }
    if local < CHUNK {
        rates[local] = (*chunk).rates;
    }
}

fn sum_of_four(v: vec4<f32>) -> f32 {
    return (v.x + v.y) + (v.z + v.w);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let id = group.y * groups.x + group.x;
    if id >= params.items {
        return;
    }
    let blocks = (VALUE + ROWS - 1u) / ROWS;
    let head = id / blocks % params.heads;
#ifdef TILED
    let key_head = head % params.key_heads;
#else
    let key_head = head / (params.heads / params.key_heads);
#endif
    let first_value = id % blocks * ROWS;
    let lane = local % LANES;
    let own = first_value + local / LANES;
    let value_row = min(own, VALUE - 1u);
#ifdef SEQUENCES
    let first_row = id / (blocks * params.heads);
    let tokens = 1u;
    let at_position = first_row * 4u;
    let of_sequence = position[at_position + 3u] * (params.state_len / 4u);
#else
    let first_row = 0u;
    let tokens = params.tokens;
    let at_position = 0u;
    let of_sequence = 0u;
#endif
    let first_state = of_sequence + (head * WORDS + lane) * VALUE + value_row;
    let place = Place(first_row, tokens, head, key_head, first_value);
    let is_fresh = position[at_position] == 0u;
    var s: array<vec4<f32>, OWN>;
    for (var i = 0u; i < OWN; i++) {
        s[i] = select(state[first_state + i * LANES * VALUE], vec4<f32>(0.0), is_fresh);
    }
    let columns = params.heads * VALUE;
    let column = head * VALUE + value_row;

    var next: Chunk;
    load_chunk(&next, place, 0u, local);
    for (var first = 0u; first < tokens; first += CHUNK) {
        store_chunk(&next, local);
        workgroupBarrier();
        load_chunk(&next, place, first + CHUNK, local);
        for (var token = 0u; token < min(CHUNK, tokens - first); token++) {
            let query = token * 2u * WORDS + lane;
            let decay = rates[token].x;
            let value = values[token * (ROWS / 4u) + local / LANES / 4u][local / LANES % 4u];
            var known = vec4<f32>(0.0);
            var read = vec4<f32>(0.0);
            var both = vec4<f32>(0.0);
            for (var i = 0u; i < OWN; i++) {
                let q = queries_keys[query + i * LANES];
                let k = queries_keys[query + WORDS + i * LANES];
                known = fma(s[i], k, known);
                read = fma(s[i], q, read);
                both = fma(k, q, both);
            }
            let sums = sum_over_lanes(vec4<f32>(sum_of_four(known), sum_of_four(read), sum_of_four(both), 0.0), local);
            let change = (value - decay * sums.x) * rates[token].y;
            for (var i = 0u; i < OWN; i++) {
                s[i] = fma(queries_keys[query + WORDS + i * LANES], vec4<f32>(change), s[i] * decay);
            }
            var result = fma(change, sums.z, decay * sums.y);
            let row = first_row + first + token;
#ifdef NORMED
            let buffer = token % 2u * ROWS;
            if lane == 0u {
                squares[buffer + local / LANES] = result * result;
            }
            workgroupBarrier();
            var square = 0.0;
            for (var i = lane; i < VALUE; i += LANES) {
                square += squares[buffer + i];
            }
            let total = sum_over_lanes(vec4<f32>(square, 0.0, 0.0, 0.0), local).x;
            result *= inverseSqrt(total / f32(VALUE) + params.epsilon) * vectors[2u * params.heads + value_row];
#endif
            if lane == 0u && own < VALUE {
#ifdef NORMED
                result *= activate(gate[row * params.gate_columns + params.gate_first + column]);
#endif
#ifdef SOA
                out[row * columns + soa_index(column, columns / 32u)] = result;
#else
                out[row * columns + column] = result;
#endif
            }
        }
        // The next chunk replaces what others may still read.
        workgroupBarrier();
    }

    if position[at_position + 2u] == 0u && own < VALUE {
        for (var i = 0u; i < OWN; i++) {
            state[first_state + i * LANES * VALUE] = s[i];
        }
    }
}
