// `own` is the path of this kernel.
struct Params { advance: u32, ring: u32, own: u32 }

@group(0) @binding(0) var<storage, read> values: array<f32>;
@group(0) @binding(1) var<storage, read> tokens: array<u32>;
@group(0) @binding(2) var<storage, read> settings: array<SamplerRow>;
@group(0) @binding(3) var<storage, read_write> state: array<u32>;
@group(0) @binding(4) var<storage, read_write> next_token: array<u32>;
@group(0) @binding(5) var<storage, read_write> ring: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "sampler_row"
#import "advance"

var<workgroup> best_values: array<f32, WORKGROUP>;
var<workgroup> best_tokens: array<u32, WORKGROUP>;

// u32::MAX, which means NaN, beats everything.
fn is_better(value: f32, token: u32, than_value: f32, than_token: u32) -> bool {
    if than_token == 0xffffffffu || token == 0xffffffffu {
        return than_token != 0xffffffffu;
    }
    return value > than_value || (value == than_value && token < than_token);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = group.x;
    let shares_at = row * SHARES;
    var value = values[shares_at + local];
    var token = tokens[shares_at + local];
#ifdef ROLLED
    for (var i = local + WORKGROUP; i < SHARES; i += WORKGROUP) {
        let at = shares_at + i;
        if is_better(values[at], tokens[at], value, token) {
            value = values[at];
            token = tokens[at];
        }
    }
#else
    // Shares are a multiple of four workgroups; four reads do not wait for each other.
    for (var i = local; i < SHARES; i += 4u * WORKGROUP) {
        let at = vec4<u32>(i, i + WORKGROUP, i + 2u * WORKGROUP, i + 3u * WORKGROUP) + shares_at;
        let four = vec4<f32>(values[at.x], values[at.y], values[at.z], values[at.w]);
        let their_tokens = vec4<u32>(tokens[at.x], tokens[at.y], tokens[at.z], tokens[at.w]);
        for (var k = 0u; k < 4u; k++) {
            if is_better(four[k], their_tokens[k], value, token) {
                value = four[k];
                token = their_tokens[k];
            }
        }
    }
#endif
    best_values[local] = value;
    best_tokens[local] = token;
    for (var step = WORKGROUP / 2u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if local < step && is_better(best_values[local + step], best_tokens[local + step], best_values[local], best_tokens[local]) {
            best_values[local] = best_values[local + step];
            best_tokens[local] = best_tokens[local + step];
        }
    }
    if local == 0u {
        // Only -inf: nothing can be chosen.
        let is_nothing = bitcast<u32>(best_values[0]) >= 0xff7fffffu;
        advance(row, select(best_tokens[0], 0xffffffffu, is_nothing), params.own);
    }
}
