// state = decay · state + (1 − decay) · x and then x += state, column by column, of token after token.
struct Params { tokens: u32, columns: u32, own_sequences: u32, soa: u32 }

@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read> position: array<u32>;
@group(0) @binding(2) var<storage, read_write> averages: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

const DECAY = 0.75;

fn place(column: u32) -> u32 {
    let blocks = params.columns / 32u;
    return select(column, ((column % 32u) / 4u * blocks + column / 32u) * 4u + column % 4u, params.soa == 1u);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let column = id.x;
    if column >= params.columns {
        return;
    }
    var average = 0.0;
    for (var token = 0u; token < params.tokens; token++) {
        let row = select(0u, token, params.own_sequences == 1u);
        let at = select(0u, position[4u * row + 3u] * params.columns, params.own_sequences == 1u) + column;
        if params.own_sequences == 1u || token == 0u {
            average = select(averages[at], 0.0, position[4u * row] == 0u);
        }
        let i = token * params.columns + place(column);
        average = DECAY * average + (1.0 - DECAY) * x[i];
        x[i] += average;
        if position[4u * row + 2u] == 0u {
            averages[at] = average;
        }
    }
}
