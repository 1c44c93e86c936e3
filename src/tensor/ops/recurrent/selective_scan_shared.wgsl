// A workgroup takes CHANNELS channels of one head through the tokens of a run. LANES neighbouring invocations share a channel's state, in
// registers: each has every LANES-th word of it. CHUNK tokens at a time are in workgroup memory, and the next ones on their way in registers,
// since a token's latency is what all of a prompt waits for.
#import "activate"
#import "soa"
#import "subgroup_sum"
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
// Of each head the factor of its decays, then the bias of its step, then what it passes on of its input.
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

// Words of a channel's state, and those of a lane.
const WORDS = LANES * OWN;
// Of a chunk, words of B and C, and of those what an invocation loads.
const STAGED = 2u * CHUNK * WORDS;
const LOADS = (STAGED + WORKGROUP - 1u) / WORKGROUP;
// The same of inputs.
const INPUTS = CHUNK * CHANNELS;
const INPUT_LOADS = (INPUTS + WORKGROUP - 1u) / WORKGROUP;

// [token][B, C][word]
var<workgroup> b_c: array<vec4<f32>, STAGED>;
var<workgroup> chunk_inputs: array<f32, INPUTS>;
// [token]: step and decay.
var<workgroup> steps: array<vec2<f32>, CHUNK>;

struct Chunk { words: array<vec4<f32>, LOADS>, inputs: array<f32, INPUT_LOADS>, step: vec2<f32> }

// The work of this workgroup.
struct Place { row: u32, tokens: u32, head: u32, first_channel: u32 }

// What an invocation loads of the chunk that begins at `first`; tokens past the end repeat the last one.
fn load_chunk(chunk: ptr<function, Chunk>, place: Place, first: u32, local: u32) {
    let last = place.tokens - 1u;
    let of_group = place.head / params.sharing * 4u * WORDS;
    for (var i = 0u; i < LOADS; i++) {
        let at = min(local + i * WORKGROUP, STAGED - 1u);
        let row = place.row + min(first + at / (2u * WORDS), last);
        let first_column = select(params.b_first, params.c_first, at / WORDS % 2u == 1u);
        // Rows may begin anywhere.
        let start = row * params.bc_columns + first_column + of_group + 4u * (at % WORDS);
        (*chunk).words[i] = vec4<f32>(bc[start], bc[start + 1u], bc[start + 2u], bc[start + 3u]);
    }
    for (var i = 0u; i < INPUT_LOADS; i++) {
        let at = min(local + i * WORKGROUP, INPUTS - 1u);
        let row = place.row + min(first + at / CHANNELS, last);
        (*chunk).inputs[i] = x[row * params.x_columns + place.first_channel + at % CHANNELS];
    }
    if local < CHUNK {
        let row = place.row + min(first + local, last);
        let raw = dt[row * params.dt_columns + params.dt_first + place.head] * params.dt_scale;
        let step = softplus(raw + vectors[params.heads + place.head]);
        (*chunk).step = vec2<f32>(step, exp(vectors[place.head] * step));
    }
}

fn store_chunk(chunk: ptr<function, Chunk>, local: u32) {
    for (var i = 0u; i < LOADS; i++) {
        let at = local + i * WORKGROUP;
        if at < STAGED {
            b_c[at] = (*chunk).words[i];
        }
    }
    for (var i = 0u; i < INPUT_LOADS; i++) {
        let at = local + i * WORKGROUP;
        if at < INPUTS {
            chunk_inputs[at] = (*chunk).inputs[i];
        }
    }
    if local < CHUNK {
        steps[local] = (*chunk).step;
    }
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let id = group.y * groups.x + group.x;
    if id >= params.items {
        return;
    }
    let lane = local % LANES;
    let first_channel = id % params.blocks * CHANNELS;
    let channel = first_channel + local / LANES;
    let head = first_channel / params.head_dim;
#ifdef SEQUENCES
    let first_row = id / params.blocks;
    let tokens = 1u;
    let at_position = first_row * 4u;
    let of_sequence = position[at_position + 3u] * (params.state_len / 4u);
#else
    let first_row = 0u;
    let tokens = params.tokens;
    let at_position = 0u;
    let of_sequence = 0u;
#endif
    let first_state = of_sequence + lane * params.channels + channel;
    let place = Place(first_row, tokens, head, first_channel);
    let is_fresh = position[at_position] == 0u;
    var s: array<vec4<f32>, OWN>;
    for (var i = 0u; i < OWN; i++) {
        s[i] = select(state[first_state + i * LANES * params.channels], vec4<f32>(0.0), is_fresh);
    }
    let passed = vectors[2u * params.heads + head];

    var next: Chunk;
    load_chunk(&next, place, 0u, local);
    for (var first = 0u; first < tokens; first += CHUNK) {
        store_chunk(&next, local);
        workgroupBarrier();
        load_chunk(&next, place, first + CHUNK, local);
        for (var token = 0u; token < min(CHUNK, tokens - first); token++) {
            let step = steps[token];
            let input = chunk_inputs[token * CHANNELS + local / LANES];
            let scaled = vec4<f32>(input * step.x);
            let b = token * 2u * WORDS + lane;
            var reads = vec4<f32>(0.0);
            for (var i = 0u; i < OWN; i++) {
                s[i] = fma(b_c[b + i * LANES], scaled, s[i] * step.y);
                reads = fma(b_c[b + WORDS + i * LANES], s[i], reads);
            }
            var y = (reads.x + reads.y) + (reads.z + reads.w);
            for (var other = LANES / 2u; other > 0u; other /= 2u) {
                y += subgroupShuffleXor(y, other);
            }
            if lane == 0u {
                let row = first_row + first + token;
                y += passed * input;
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
        // The next chunk replaces what others may still read.
        workgroupBarrier();
    }

    if position[at_position + 2u] == 0u {
        for (var i = 0u; i < OWN; i++) {
            state[first_state + i * LANES * params.channels] = s[i];
        }
    }
}
