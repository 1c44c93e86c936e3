struct Params { vocabulary: u32 }

@group(0) @binding(0) var<storage, read> logits: array<u32>;
@group(0) @binding(1) var<storage, read_write> tally: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "truncation"
#import "four_logits"

var<workgroup> largest: atomic<u32>;
var<workgroup> inverted_smallest: atomic<u32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    if local == 0u {
        atomicStore(&largest, 0u);
        atomicStore(&inverted_smallest, 0u);
    }
    workgroupBarrier();
    let first = group.x * 256u + local;
    let logits_at = group.y * params.vocabulary;
    let tally_at = group.y * TALLY;
    var most = 0u;
    var inverted_least = 0u;
    for (var token = first; token < params.vocabulary; token += 4u * STRIDE) {
        // Repeating the last logit changes neither the largest nor the smallest.
        let four = four_logits(logits_at, four_tokens(token));
        for (var i = 0u; i < 4u; i++) {
            let key = key_of(four[i]);
            most = max(most, key);
            inverted_least = max(inverted_least, ~key);
        }
    }
    atomicMax(&largest, most);
    atomicMax(&inverted_smallest, inverted_least);
    for (var i = first; i < 3u * BINS; i += STRIDE) {
        tally[tally_at + HISTOGRAM + i] = 0u;
    }
    workgroupBarrier();
    if local == 0u {
        tally[tally_at + group.x] = atomicLoad(&largest);
        tally[tally_at + MAX_GROUPS + group.x] = atomicLoad(&inverted_smallest);
    }
    if group.x == 0u && local >= GROUPS && local < MAX_GROUPS {
        tally[tally_at + local] = 0u;
        tally[tally_at + MAX_GROUPS + local] = 0u;
    }
}
