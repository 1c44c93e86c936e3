// One workgroup takes the channels of one head, or HEAD of them, an invocation each, through a chunk of consecutive tokens. The workgroup
// of a run's first chunk alone reads and writes the state, so nobody reads what another one writes.
#import "activate"
#import "soa"

struct Params {
    items: u32, heads: u32, tokens: u32, columns: u32, first: u32, channels: u32,
    // Channels of queries, and of queries and keys.
    queries: u32, normed: u32, state_len: u32,
    // The factor of normed queries.
    scale: f32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> weights: array<f32>;
@group(0) @binding(2) var<storage, read> position: array<u32>;
@group(0) @binding(3) var<storage, read_write> state: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

#ifdef NORMED
// Of tokens with even and with odd numbers, so that one barrier for each token is enough.
var<workgroup> squares: array<f32, 2u * HEAD>;
#endif

struct Run {
    // The row of its first token, and where its state begins.
    row: u32, state: u32,
    is_fresh: bool,
}

// The input of a channel at a token of the run; before the run's first token, what the state holds.
fn input(run: Run, channel: u32, token: i32) -> f32 {
    if token >= 0 {
        let at = (run.row + u32(token)) * params.columns + params.first + channel;
#ifdef GATED
        return x[at] * x[at + 2u * params.channels];
#else
        return x[at];
#endif
    }
    if run.is_fresh {
        return 0.0;
    }
    return state[run.state + u32(token + i32(TAPS) - 1) * params.channels + channel];
}

@compute @workgroup_size(HEAD)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let id = group.y * groups.x + group.x;
    if id >= params.items {
        return;
    }
    let head = id % params.heads;
#ifdef SEQUENCES
    let place = id / params.heads * 4u;
    let run = Run(id / params.heads, position[place + 3u] * params.state_len, position[place] == 0u);
    let first_token = 0u;
    let tokens = 1u;
#else
    let place = 0u;
    let run = Run(0u, 0u, position[0] == 0u);
    let first_token = id / params.heads * CHUNK;
    let tokens = params.tokens;
#endif
    let own = head * HEAD + local;
    let channel = min(own, params.channels - 1u);
#ifdef NORMED
    let is_normed = head * HEAD < params.normed;
    let scale = select(1.0, params.scale, head * HEAD < params.queries);
#endif
#ifdef BIASED
    let bias = weights[params.channels * TAPS + channel];
#else
    let bias = 0.0;
#endif

    for (var token = first_token; token < min(first_token + CHUNK, tokens); token++) {
        var sum = bias;
        for (var tap = 0u; tap < TAPS; tap++) {
            sum += weights[channel * TAPS + tap] * input(run, channel, i32(token + tap) - i32(TAPS) + 1);
        }
        let row = run.row + token;
#ifdef GATED
        let value = sum * x[row * params.columns + params.first + params.channels + channel];
#else
        var value = activate(sum);
#endif
#ifdef NORMED
        let buffer = token % 2u * HEAD;
        squares[buffer + local] = value * value;
        workgroupBarrier();
        if is_normed {
            var total = 0.0;
            for (var i = 0u; i < HEAD; i++) {
                total += squares[buffer + i];
            }
            value *= scale * inverseSqrt(total + 1e-6);
        }
#endif
        if own < params.channels {
#ifdef SOA
            out[row * params.channels + soa_index(channel, params.channels / 32u)] = value;
#else
            out[row * params.channels + channel] = value;
#endif
        }
    }

    if first_token == 0u && own < params.channels && position[place + 2u] == 0u {
        // Each is read before it is written, since what is read comes later in the state.
        for (var i = 0u; i + 1u < TAPS; i++) {
            state[run.state + i * params.channels + channel] = input(run, channel, i32(tokens + i) - i32(TAPS) + 1);
        }
    }
}
