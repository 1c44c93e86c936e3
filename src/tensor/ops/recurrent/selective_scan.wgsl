// LANES invocations take one channel through the tokens of a run, with its state in registers. A workgroup has 64 channels.
#import "activate"
#import "soa"
#import "softplus"

struct Params {
    items: u32,
    // Workgroups of a sequence.
    blocks: u32,
    channels: u32,
    // Channels of a head, and heads that share B and C.
    head_dim: u32, sharing: u32, heads: u32,
    tokens: u32,
    x_columns: u32, bc_columns: u32, b_first: u32, c_first: u32, dt_columns: u32, dt_first: u32,
    gate_columns: u32, gate_first: u32,
    state_len: u32,
    dt_scale: f32, gate_scale: f32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> bc: array<f32>;
@group(0) @binding(2) var<storage, read> dt: array<f32>;
// The factors of the decays, then of each head the bias of its step, then what it passes on of its input.
@group(0) @binding(3) var<storage, read> vectors: array<f32>;
@group(0) @binding(4) var<storage, read> position: array<u32>;
// [WORDS, channels] words of four numbers.
@group(0) @binding(5) var<storage, read_write> state: array<vec4<f32>>;
#ifdef GATED
@group(0) @binding(6) var<storage, read> gate: array<f32>;
@group(0) @binding(7) var<storage, read_write> out: array<f32>;
#else
@group(0) @binding(6) var<storage, read_write> out: array<f32>;
#endif
@group(0) @binding(20) var<uniform> params: Params;

#ifdef SEVERAL
// Of tokens with even and with odd numbers, so that one barrier for each token is enough.
var<workgroup> sums: array<f32, 2u * CHANNELS * LANES>;
#endif

fn word(first: u32) -> vec4<f32> {
    return vec4<f32>(bc[first], bc[first + 1u], bc[first + 2u], bc[first + 3u]);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let id = group.y * groups.x + group.x;
    if id >= params.items {
        return;
    }
    let lane = local / CHANNELS;
    let own = id % params.blocks * CHANNELS + local % CHANNELS;
    let channel = min(own, params.channels - 1u);
    let head = channel / params.head_dim;
#ifdef SEQUENCES
    let first_row = id / params.blocks;
    let tokens = 1u;
    let place = first_row * 4u;
    let first_state = position[place + 3u] * (params.state_len / 4u) + lane * WORDS_OF_LANE * params.channels + channel;
#else
    let first_row = 0u;
    let tokens = params.tokens;
    let place = 0u;
    let first_state = lane * WORDS_OF_LANE * params.channels + channel;
#endif
    let is_fresh = position[place] == 0u;
    var s: array<vec4<f32>, WORDS_OF_LANE>;
    for (var i = 0u; i < WORDS_OF_LANE; i++) {
        s[i] = select(state[first_state + i * params.channels], vec4<f32>(0.0), is_fresh);
    }
#ifdef MATRIX
    // A factor for each number of the state.
    var factors: array<vec4<f32>, WORDS_OF_LANE>;
    for (var i = 0u; i < WORDS_OF_LANE; i++) {
        let at = (head * WORDS_OF_LANE * LANES + lane * WORDS_OF_LANE + i) * 4u;
        factors[i] = vec4<f32>(vectors[at], vectors[at + 1u], vectors[at + 2u], vectors[at + 3u]);
    }
    let after = params.heads * WORDS_OF_LANE * LANES * 4u;
#else
    let factor = vectors[head];
    let after = params.heads;
#endif
    let bias = vectors[after + head];
    let passed = vectors[after + params.heads + head];
    let first_word = (head / params.sharing * LANES + lane) * WORDS_OF_LANE * 4u;

    for (var token = 0u; token < tokens; token++) {
        let row = first_row + token;
        let step = softplus(dt[row * params.dt_columns + params.dt_first + head] * params.dt_scale + bias);
        let input = x[row * params.x_columns + channel];
        let scaled = input * step;
#ifndef MATRIX
        let decay = exp(factor * step);
#endif
        let b = row * params.bc_columns + params.b_first + first_word;
        let c = row * params.bc_columns + params.c_first + first_word;
        var read = 0.0;
        for (var i = 0u; i < WORDS_OF_LANE; i++) {
#ifdef MATRIX
            let decay = exp(factors[i] * step);
#endif
            s[i] = s[i] * decay + word(b + i * 4u) * scaled;
            read += dot(s[i], word(c + i * 4u));
        }
#ifdef SEVERAL
        let buffer = token % 2u * CHANNELS * LANES;
        sums[buffer + local] = read;
        workgroupBarrier();
        if lane == 0u {
            for (var other = 1u; other < LANES; other++) {
                read += sums[buffer + other * CHANNELS + local];
            }
        }
#endif
        if lane == 0u && own < params.channels {
            var y = read + passed * input;
#ifdef GATED
            y *= activate(gate[row * params.gate_columns + params.gate_first + channel] * params.gate_scale);
#endif
#ifdef SOA
            out[row * params.channels + soa_index(channel, params.channels / 32u)] = y;
#else
            out[row * params.channels + channel] = y;
#endif
        }
    }

    if position[place + 2u] == 0u && own < params.channels {
        for (var i = 0u; i < WORDS_OF_LANE; i++) {
            state[first_state + i * params.channels] = s[i];
        }
    }
}
