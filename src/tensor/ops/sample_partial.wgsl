struct Params { vocabulary: u32 }

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> settings: array<u32>;
@group(0) @binding(2) var<storage, read> state: array<u32>;
@group(0) @binding(3) var<storage, read_write> values: array<f32>;
@group(0) @binding(4) var<storage, read_write> tokens: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "gumbel"

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let share = id.x;
    let inverse_temperature = bitcast<f32>(settings[0]);
    var best_value = -3.4028234663852886e38;
    var best_token = 0u;
    for (var token = share; token < params.vocabulary; token += SHARES) {
        var value = logits[token];
        // By its bits: compilers may assume that x == x.
        if (bitcast<u32>(value) & 0x7fffffffu) > 0x7f800000u {
            best_token = 0xffffffffu;
            break;
        }
        if inverse_temperature > 0.0 {
            value = value * inverse_temperature + gumbel(vec3<u32>(settings[1] ^ token, settings[2], state[1]));
        }
        if token == share || value > best_value {
            best_value = value;
            best_token = token;
        }
    }
    values[share] = best_value;
    tokens[share] = best_token;
}
