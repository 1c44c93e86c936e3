struct Params { vocabulary: u32, mass_bits: u32 }

@group(0) @binding(0) var<storage, read> logits: array<u32>;
@group(0) @binding(1) var<storage, read> settings: array<SamplerRow>;
@group(0) @binding(2) var<storage, read_write> tally: array<atomic<u32>>;
@group(0) @binding(20) var<uniform> params: Params;

#import "sampler_row"
#import "truncation"
#import "four_logits"

var<workgroup> largest_key: atomic<u32>;
var<workgroup> inverted_smallest: atomic<u32>;
var<workgroup> counts: array<atomic<u32>, BINS>;
var<workgroup> lows: array<atomic<u32>, BINS>;
var<workgroup> highs: array<atomic<u32>, BINS>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let logits_at = group.y * params.vocabulary;
    let tally_at = group.y * TALLY;
    if local == 0u {
        atomicStore(&largest_key, 0u);
        atomicStore(&inverted_smallest, 0u);
    }
    for (var bin = local; bin < BINS; bin += 256u) {
        atomicStore(&counts[bin], 0u);
        atomicStore(&lows[bin], 0u);
        atomicStore(&highs[bin], 0u);
    }
    workgroupBarrier();
    if local < GROUPS {
        atomicMax(&largest_key, atomicLoad(&tally[tally_at + local]));
        atomicMax(&inverted_smallest, atomicLoad(&tally[tally_at + MAX_GROUPS + local]));
    }
    workgroupBarrier();
    let largest = atomicLoad(&largest_key);
    let octaves = settings[group.y].octaves;
    let shift = bin_shift(~atomicLoad(&inverted_smallest), largest, octaves);
    for (var first = group.x * 256u + local; first < params.vocabulary; first += 4u * STRIDE) {
        let tokens = four_tokens(first);
        let four = four_logits(logits_at, tokens);
        for (var i = 0u; i < 4u; i++) {
            let depth = depth_of(key_of(four[i]), largest, octaves);
            if tokens[i] < params.vocabulary && depth < REST {
                let bin = depth >> shift;
                let weight = weight_of(depth, params.mass_bits);
                atomicAdd(&counts[bin], 1u);
                let old = atomicAdd(&lows[bin], weight.x);
                let high = weight.y + u32(old + weight.x < old);
                if high != 0u {
                    atomicAdd(&highs[bin], high);
                }
            }
        }
    }
    workgroupBarrier();
    for (var bin = local; bin < BINS; bin += 256u) {
        let count = atomicLoad(&counts[bin]);
        if count != 0u {
            atomicAdd(&tally[tally_at + HISTOGRAM + bin], count);
            let low = atomicLoad(&lows[bin]);
            let old = atomicAdd(&tally[tally_at + HISTOGRAM + BINS + bin], low);
            let high = atomicLoad(&highs[bin]) + u32(old + low < old);
            if high != 0u {
                atomicAdd(&tally[tally_at + HISTOGRAM + 2u * BINS + bin], high);
            }
        }
    }
}
