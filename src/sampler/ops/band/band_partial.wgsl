struct Params { vocabulary: u32 }

@group(0) @binding(0) var<storage, read> logits: array<u32>;
@group(0) @binding(1) var<storage, read> settings: array<SamplerRow>;
@group(0) @binding(2) var<storage, read> state: array<u32>;
@group(0) @binding(3) var<storage, read> band: array<u32>;
@group(0) @binding(4) var<storage, read_write> values: array<f32>;
@group(0) @binding(5) var<storage, read_write> tokens: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "sampler_row"
#import "truncation"
#import "band"
#import "gumbel"

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let share = id.x;
    let row = id.y;
    let kept = vec4<u32>(band[row * BAND], band[row * BAND + 1u], band[row * BAND + 2u], band[row * BAND + 3u]);
    let inverse_temperature = settings[row].inverse_temperature;
    let octaves = settings[row].octaves;
    let is_nothing = is_no_logit(kept.x);
    var best_value = -3.4028234663852886e38;
    var best_token = select(0u, NONE, is_nothing);
    for (var token = share; token < params.vocabulary && !is_nothing; token += SHARES) {
        let key = key_of(logits[row * params.vocabulary + token]);
        if is_kept(key, depth_of(key, kept.x, octaves), kept) {
            let noise = gumbel(vec3<u32>(settings[row].seed_low ^ token, settings[row].seed_high, state[row * 4u + 1u]));
            let value = below_largest(key, kept.x) * inverse_temperature + noise;
            if value > best_value {
                best_value = value;
                best_token = token;
            }
        }
    }
    values[row * SHARES + share] = best_value;
    tokens[row * SHARES + share] = best_token;
}
