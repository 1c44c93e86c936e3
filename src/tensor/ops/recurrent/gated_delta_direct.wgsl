// For adapters where lanes can't share a sum, or where barriers are expensive. One workgroup takes one head through the tokens of a run. An
// invocation has the row of the state that belongs to one element of the values, in registers, so that the sums over a key need nobody else.
#import "activate"
#import "soa"

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

#ifdef NORMED
// Of tokens with even and with odd numbers, so that one barrier for each token is enough.
var<workgroup> squares: array<f32, 2u * VALUE>;
#endif

#import "delta_rates"

@compute @workgroup_size(VALUE)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let id = group.y * groups.x + group.x;
    if id >= params.items {
        return;
    }
    let head = id % params.heads;
#ifdef TILED
    let key_head = head % params.key_heads;
#else
    let key_head = head / (params.heads / params.key_heads);
#endif
#ifdef SEQUENCES
    let first_row = id / params.heads;
    let tokens = 1u;
    let place = first_row * 4u;
    let first_state = position[place + 3u] * (params.state_len / 4u) + head * WORDS * VALUE + local;
#else
    let first_row = 0u;
    let tokens = params.tokens;
    let place = 0u;
    let first_state = head * WORDS * VALUE + local;
#endif
    let is_fresh = position[place] == 0u;
    var s: array<vec4<f32>, WORDS>;
    for (var i = 0u; i < WORDS; i++) {
        s[i] = select(state[first_state + i * VALUE], vec4<f32>(0.0), is_fresh);
    }

    let words_of_token = params.key_heads * 2u * WORDS + params.heads * (VALUE / 4u);
    let columns = params.heads * VALUE;
    let column = head * VALUE + local;
    for (var token = 0u; token < tokens; token++) {
        let row = first_row + token;
        let query = row * words_of_token + key_head * WORDS;
        let key = query + params.key_heads * WORDS;
        let value = qkv[row * words_of_token + params.key_heads * 2u * WORDS + column / 4u][column % 4u];
        let rate = rate_of(row, head);
        let decay = decay_of(row, head);

        var known = 0.0;
        for (var i = 0u; i < WORDS; i++) {
            s[i] *= decay;
            known += dot(s[i], qkv[key + i]);
        }
        let delta = (value - known) * rate;
        var read = 0.0;
        for (var i = 0u; i < WORDS; i++) {
            s[i] += qkv[key + i] * delta;
            read += dot(s[i], qkv[query + i]);
        }

#ifdef NORMED
        let buffer = token % 2u * VALUE;
        squares[buffer + local] = read * read;
        workgroupBarrier();
        var total = 0.0;
        for (var i = 0u; i < VALUE; i++) {
            total += squares[buffer + i];
        }
        let normed = read * inverseSqrt(total / f32(VALUE) + params.epsilon) * vectors[2u * params.heads + local];
        let result = normed * activate(gate[row * params.gate_columns + params.gate_first + column]);
#else
        let result = read;
#endif
#ifdef SOA
        let at = row * columns + soa_index(column, columns / 32u);
#else
        let at = row * columns + column;
#endif
        out[at] = result;
    }

    if position[place + 2u] == 0u {
        for (var i = 0u; i < WORDS; i++) {
            state[first_state + i * VALUE] = s[i];
        }
    }
}
