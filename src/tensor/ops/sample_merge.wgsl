struct Params { advance: u32, ring: u32 }

@group(0) @binding(0) var<storage, read> values: array<f32>;
@group(0) @binding(1) var<storage, read> tokens: array<u32>;
@group(0) @binding(2) var<storage, read_write> state: array<u32>;
@group(0) @binding(3) var<storage, read_write> next_token: array<u32>;
@group(0) @binding(4) var<storage, read_write> ring: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

var<workgroup> best_values: array<f32, 64>;
var<workgroup> best_tokens: array<u32, 64>;

// u32::MAX, which says NaN, beats everything.
fn is_better(value: f32, token: u32, than_value: f32, than_token: u32) -> bool {
    if than_token == 0xffffffffu || token == 0xffffffffu {
        return than_token != 0xffffffffu;
    }
    return value > than_value || (value == than_value && token < than_token);
}

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) local: u32) {
    var value = values[local];
    var token = tokens[local];
    for (var i = local + 64u; i < SHARES; i += 64u) {
        if is_better(values[i], tokens[i], value, token) {
            value = values[i];
            token = tokens[i];
        }
    }
    best_values[local] = value;
    best_tokens[local] = token;
    for (var step = 32u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if local < step && is_better(best_values[local + step], best_tokens[local + step], best_values[local], best_tokens[local]) {
            best_values[local] = best_values[local + step];
            best_tokens[local] = best_tokens[local + step];
        }
    }
    if local == 0u {
        let best = best_tokens[0];
        let step = state[1];
        next_token[0] = best;
        ring[step % params.ring] = best;
        state[0] += params.advance;
        state[1] = step + 1u;
    }
}
