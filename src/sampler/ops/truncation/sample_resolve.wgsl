struct Params { vocabulary: u32, mass_bits: u32, advance: u32, ring: u32 }

@group(0) @binding(0) var<storage, read> logits: array<u32>;
@group(0) @binding(1) var<storage, read> settings: array<SamplerRow>;
@group(0) @binding(2) var<storage, read> values: array<f32>;
@group(0) @binding(3) var<storage, read> tokens: array<u32>;
@group(0) @binding(4) var<storage, read> border: array<u32>;
@group(0) @binding(5) var<storage, read_write> state: array<u32>;
@group(0) @binding(6) var<storage, read_write> next_token: array<u32>;
@group(0) @binding(7) var<storage, read_write> ring: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "sampler_row"
#import "truncation"
#import "tally_sums"
#import "thresholds"
#import "gumbel"
#import "advance"

var<workgroup> best_key: atomic<u32>;
var<workgroup> best_inverted_token: atomic<u32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = group.x;
    let border_at = row * BORDER;
    if local == 0u {
        atomicStore(&best_key, 0u);
        atomicStore(&best_inverted_token, 0u);
    }
    start_thresholds(local);
    workgroupBarrier();
    let list = list_of(row);
    let walk = walk_of(row, list.whole, local);
    if list.few {
        gather_few(walk);
    }
    workgroupBarrier();
    let least_key = least_key_of(row, list.few, walk, local);
    let k_bin = border[border_at + K_BIN];
    let first = border[border_at + P_FIRST];
    let last = border[border_at + P_LAST];

    let step = state[row * 4u + 1u];
    let kept = min(first, k_bin);
    let end = select(last, k_bin, first == NONE);
    var best_value = 0.0;
    var best_token = NONE;
    if local < GROUPS {
        best_value = values[row * MAX_GROUPS + local];
        best_token = tokens[row * MAX_GROUPS + local];
    }
    if kept != NONE {
        for (var at = walk.start; at < walk.end; at += walk.stride) {
            let it = candidate(walk, at);
            if kept <= it.bin && it.bin <= end && it.key >= least_key && it.depth <= settings[row].min_p_depth {
                let noise = gumbel(vec3<u32>(settings[row].seed_low ^ it.token, settings[row].seed_high, step));
                let value = below_largest(it.key, border[border_at + LARGEST]) * settings[row].inverse_temperature + noise;
                if best_token == NONE || value > best_value || (value == best_value && it.token < best_token) {
                    best_value = value;
                    best_token = it.token;
                }
            }
        }
    }
    let key = key_of(bitcast<u32>(best_value));
    if best_token != NONE {
        atomicMax(&best_key, key);
    }
    workgroupBarrier();
    if best_token != NONE && key == atomicLoad(&best_key) {
        atomicMax(&best_inverted_token, ~best_token);
    }
    workgroupBarrier();
    if local == 0u {
        let best = select(~atomicLoad(&best_inverted_token), NONE, is_no_logit(border[border_at + LARGEST]));
        advance(row, best, TRUNCATED);
    }
}
