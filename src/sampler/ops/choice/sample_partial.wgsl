struct Params { vocabulary: u32 }

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> settings: array<SamplerRow>;
@group(0) @binding(2) var<storage, read> state: array<u32>;
@group(0) @binding(3) var<storage, read_write> values: array<f32>;
@group(0) @binding(4) var<storage, read_write> tokens: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "sampler_row"
#import "gumbel"

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let share = id.x;
    let row = id.y;
    let inverse_temperature = settings[row].inverse_temperature;
    let last = params.vocabulary - 1u;
    var best_value = -3.4028234663852886e38;
    var best_token = 0u;
    for (var first = share; first < params.vocabulary; first += 4u * SHARES) {
        // Four reads that do not wait for each other. Those past the end repeat the last logit, and are ignored.
        let tokens_of_four = vec4<u32>(first, first + SHARES, first + 2u * SHARES, first + 3u * SHARES);
        let at = min(tokens_of_four, vec4<u32>(last)) + row * params.vocabulary;
        let four = vec4<f32>(logits[at.x], logits[at.y], logits[at.z], logits[at.w]);
        for (var i = 0u; i < 4u && best_token != 0xffffffffu; i++) {
            let token = tokens_of_four[i];
            if token > last {
                break;
            }
            var value = four[i];
            // By its bits: compilers may assume that x == x.
            if (bitcast<u32>(value) & 0x7fffffffu) > 0x7f800000u {
                best_token = 0xffffffffu;
                break;
            }
            // Masked tokens (-inf, or the lowest number) stay below all others.
            if bitcast<u32>(value) >= 0xff7fffffu {
                value = -3.4028234663852886e38;
            } else if inverse_temperature > 0.0 {
                value = value * inverse_temperature + gumbel(vec3<u32>(settings[row].seed_low ^ token, settings[row].seed_high, state[row * 4u + 1u]));
            }
            if token == share || value > best_value {
                best_value = value;
                best_token = token;
            }
        }
    }
    values[row * SHARES + share] = best_value;
    tokens[row * SHARES + share] = best_token;
}
