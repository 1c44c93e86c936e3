// One workgroup takes the channels of one head, an invocation each, through a chunk of consecutive tokens. The workgroup of a run's
// first chunk alone reads and writes the state, so nobody reads what another one writes.
#import "activate"

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

// Of tokens with even and with odd numbers, so that one barrier for each token is enough.
var<workgroup> squares: array<f32, 2u * HEAD>;

struct Run {
    // The row of its first token, and where its state begins.
    row: u32, state: u32,
    is_fresh: bool,
}

// The input of a channel at a token of the run; before the run's first token, what the state holds.
fn input(run: Run, channel: u32, token: i32) -> f32 {
    if token >= 0 {
        return x[(run.row + u32(token)) * params.columns + params.first + channel];
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
    let is_normed = head * HEAD < params.normed;
    let scale = select(1.0, params.scale, head * HEAD < params.queries);

    for (var token = first_token; token < min(first_token + CHUNK, tokens); token++) {
        var sum = 0.0;
        for (var tap = 0u; tap < TAPS; tap++) {
            sum += weights[channel * TAPS + tap] * input(run, channel, i32(token + tap) - i32(TAPS) + 1);
        }
        var value = activate(sum);
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
        if own < params.channels {
            out[(run.row + token) * params.channels + channel] = value;
        }
    }

    if first_token == 0u && own < params.channels && position[place + 2u] == 0u {
        // Each is read before it is written, since what is read comes later in the state.
        for (var i = 0u; i + 1u < TAPS; i++) {
            state[run.state + i * params.channels + channel] = input(run, channel, i32(tokens + i) - i32(TAPS) + 1);
        }
    }
}
