struct Params { vocabulary: u32, mass_bits: u32 }

@group(0) @binding(0) var<storage, read> logits: array<u32>;
@group(0) @binding(1) var<storage, read> settings: array<SamplerRow>;
@group(0) @binding(2) var<storage, read> state: array<u32>;
@group(0) @binding(3) var<storage, read> tally: array<u32>;
@group(0) @binding(4) var<storage, read_write> values: array<f32>;
@group(0) @binding(5) var<storage, read_write> tokens: array<u32>;
@group(0) @binding(6) var<storage, read_write> border: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "sampler_row"
#import "truncation"
#import "four_logits"
#import "tally_sums"
#import "gumbel"

const BINS_EACH: u32 = BINS / 256u;

var<workgroup> largest_key: atomic<u32>;
var<workgroup> inverted_smallest: atomic<u32>;
// The bin in which top_k cuts, plus one; what lies above it, and above and in it.
var<workgroup> k_bin_plus_one: u32;
var<workgroup> k_above: vec4<u32>;
var<workgroup> k_through: vec4<u32>;
// The bins between which top_p cuts, and what lies above the first.
var<workgroup> p_first: u32;
var<workgroup> p_last: u32;
var<workgroup> p_above: vec4<u32>;
var<workgroup> p_through: vec4<u32>;
var<workgroup> best_key: atomic<u32>;
var<workgroup> best_inverted_token: atomic<u32>;

fn tally_of(row: u32, bin: u32) -> vec4<u32> {
    let at = row * TALLY + HISTOGRAM + bin;
    return vec4<u32>(tally[at], tally[at + BINS], tally[at + 2u * BINS], 0u);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = group.y;
    let logits_at = row * params.vocabulary;
    let border_at = row * BORDER;
    if local == 0u {
        atomicStore(&largest_key, 0u);
        atomicStore(&inverted_smallest, 0u);
        atomicStore(&best_key, 0u);
        atomicStore(&best_inverted_token, 0u);
        k_bin_plus_one = 0u;
        k_above = vec4<u32>(0u);
        k_through = vec4<u32>(0u);
        p_first = 0u;
        p_last = 0u;
        p_above = vec4<u32>(0u);
        p_through = vec4<u32>(0u);
    }
    workgroupBarrier();
    if local < GROUPS {
        atomicMax(&largest_key, tally[row * TALLY + local]);
        atomicMax(&inverted_smallest, tally[row * TALLY + MAX_GROUPS + local]);
    }
    var own = vec4<u32>(0u);
    for (var i = 0u; i < BINS_EACH; i++) {
        own = tally_sum(own, tally_of(row, local * BINS_EACH + i));
    }
    let before = tally_before(own, local);
    let total = tally_total();
    let top_k = settings[row].top_k;
    let top_p = settings[row].top_p;
    var above = before;
    for (var i = 0u; i < BINS_EACH; i++) {
        let through = tally_sum(above, tally_of(row, local * BINS_EACH + i));
        if above.x < top_k && top_k <= through.x {
            k_bin_plus_one = local * BINS_EACH + i + 1u;
            k_above = above;
            k_through = through;
        }
        above = through;
    }
    workgroupBarrier();
    let cuts_k = k_bin_plus_one != 0u;
    // The mass after top_k is at least the first and at most the second; only the border bin is uncertain.
    let least = wanted_mass(top_p, select(total.yz, k_above.yz, cuts_k));
    let most = wanted_mass(top_p, select(total.yz, k_through.yz, cuts_k));
    above = before;
    for (var i = 0u; i < BINS_EACH; i++) {
        let bin = local * BINS_EACH + i;
        let through = tally_sum(above, tally_of(row, bin));
        let reached_before = mass_as_float(above.yz);
        let reached = mass_as_float(through.yz);
        if reached_before < least && least <= reached {
            p_first = bin;
            p_above = above;
            p_through = through;
        }
        if reached_before < most && most <= reached {
            p_last = bin;
        }
        above = through;
    }
    workgroupBarrier();
    let k_bin = k_bin_plus_one - 1u; // NONE without a cut
    let cuts_p = top_p < 1.0;
    let first = select(NONE, p_first, cuts_p);
    let last = select(0u, p_last, cuts_p);
    // Everything in the bins before this one is kept.
    let kept = min(first, k_bin);

    let largest = atomicLoad(&largest_key);
    let octaves = settings[row].octaves;
    let shift = bin_shift(~atomicLoad(&inverted_smallest), largest, octaves);
    var best_value = 0.0;
    var best_token = NONE;
    var on_border = 0u;
    for (var at = group.x * 256u + local; at < params.vocabulary; at += 4u * STRIDE) {
        let four = four_tokens(at);
        let bits = four_logits(logits_at, four);
        for (var i = 0u; i < 4u; i++) {
            let token = four[i];
            let key = key_of(bits[i]);
            let depth = depth_of(key, largest, octaves);
            let bin = depth >> shift;
            if token >= params.vocabulary || depth >= REST || key == NAN_KEY {
                continue;
            }
            if bin < kept {
                if depth <= settings[row].min_p_depth {
                    let noise = gumbel(vec3<u32>(settings[row].seed_low ^ token, settings[row].seed_high, state[row * 4u + 1u]));
                    let value = below_largest(key, largest) * settings[row].inverse_temperature + noise;
                    if best_token == NONE || value > best_value {
                        best_value = value;
                        best_token = token;
                    }
                }
            } else if bin == k_bin || (first <= bin && bin <= last) {
                on_border += 1u;
            }
        }
    }
    if best_token != NONE {
        atomicMax(&best_key, key_of(bitcast<u32>(best_value)));
    }
    // The start of this invocation's entries does not depend on the order of execution.
    var slot = tally_before(vec4<u32>(on_border, 0u, 0u, 0u), local).x;
    let listed = tally_total().x;
    if best_token != NONE && key_of(bitcast<u32>(best_value)) == atomicLoad(&best_key) {
        atomicMax(&best_inverted_token, ~best_token);
    }
    if on_border != 0u {
        for (var token = group.x * 256u + local; token < params.vocabulary; token += STRIDE) {
            let key = key_of(logits[logits_at + token]);
            let depth = depth_of(key, largest, octaves);
            let bin = depth >> shift;
            if depth < REST && key != NAN_KEY && bin >= kept && (bin == k_bin || (first <= bin && bin <= last)) {
                if slot < SEGMENT {
                    let at = LIST + (group.x * SEGMENT + slot) * 2u;
                    border[border_at + at] = key;
                    border[border_at + at + 1u] = token;
                }
                slot += 1u;
            }
        }
    }
    for (var unused = listed + local; unused < SEGMENT; unused += 256u) {
        let at = LIST + (group.x * SEGMENT + unused) * 2u;
        border[border_at + at] = 0u;
        border[border_at + at + 1u] = 0u;
    }
    workgroupBarrier();
    if group.x == 0u && local >= GROUPS && local < MAX_GROUPS {
        values[row * MAX_GROUPS + local] = 0.0;
        tokens[row * MAX_GROUPS + local] = NONE;
        border[border_at + COUNTS + local] = 0u;
    }
    if local == 0u {
        let key = atomicLoad(&best_key);
        values[row * MAX_GROUPS + group.x] = select(logit_of(key), 0.0, key == 0u);
        tokens[row * MAX_GROUPS + group.x] = ~atomicLoad(&best_inverted_token);
        border[border_at + COUNTS + group.x] = listed;
        if group.x == 0u {
            border[border_at + LARGEST] = largest;
            border[border_at + SHIFT] = shift;
            border[border_at + K_BIN] = k_bin;
            border[border_at + K_ABOVE] = k_above.x;
            border[border_at + K_ABOVE + 1u] = k_above.y;
            border[border_at + K_ABOVE + 2u] = k_above.z;
            border[border_at + P_FIRST] = first;
            border[border_at + P_LAST] = last;
            border[border_at + P_ABOVE] = p_above.y;
            border[border_at + P_ABOVE + 1u] = p_above.z;
            border[border_at + TOTAL] = total.y;
            border[border_at + TOTAL + 1u] = total.z;
            border[border_at + K_THROUGH] = k_through.y;
            border[border_at + K_THROUGH + 1u] = k_through.z;
            let k_is_whole = cuts_k && k_through.x == top_k;
            let p_is_single = cuts_p && first == last && p_through.x - p_above.x == 1u;
            border[border_at + FLAGS] = select(0u, K_IS_WHOLE, k_is_whole) | select(0u, P_IS_SINGLE, p_is_single);
            border[border_at + FLAGS + 1u] = 0u;
        }
    }
}
