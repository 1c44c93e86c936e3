struct Params { vocabulary: u32 }

// As words: numbers that are not finite are not computed with.
@group(0) @binding(0) var<storage, read> logits: array<u32>;
@group(0) @binding(1) var<storage, read> settings: array<SamplerRow>;
@group(0) @binding(2) var<storage, read_write> kept: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "sampler_row"
#import "truncation"
#import "workgroup_total"

var<workgroup> largest_key: atomic<u32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = group.x;
    let row_at = row * params.vocabulary;
    if local == 0u {
        atomicStore(&largest_key, 0u);
    }
    workgroupBarrier();
    var most = 0u;
    var count = 0.0;
    var sum = 0.0;
    for (var token = local; token < params.vocabulary; token += 256u) {
        let key = key_of(logits[row_at + token]);
        most = max(most, key);
        if !is_no_logit(key) {
            count += 1.0;
            sum += logit_of(key);
        }
    }
    atomicMax(&largest_key, most);
    count = max(workgroup_total(count, local), 1.0);
    let mean = workgroup_total(sum, local) / count;
    var squares = 0.0;
    for (var token = local; token < params.vocabulary; token += 256u) {
        let key = key_of(logits[row_at + token]);
        if !is_no_logit(key) {
            let difference = logit_of(key) - mean;
            squares += difference * difference;
        }
    }
    let deviation = sqrt(workgroup_total(squares, local) / count);
    let largest = atomicLoad(&largest_key);
    let n = settings[row].top_n_sigma;
    let least = logit_of(largest) - n * deviation;
    let cuts = n > 0.0 && !is_no_logit(largest);
    for (var token = local; token < params.vocabulary; token += 256u) {
        let bits = logits[row_at + token];
        let key = key_of(bits);
        let is_cut = cuts && key != largest && (is_no_logit(key) || logit_of(key) < least);
        kept[row_at + token] = select(bits, MASKED, is_cut);
    }
}
