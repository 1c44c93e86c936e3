struct Params { vocabulary: u32 }

// As words: numbers that are not finite are not computed with.
@group(0) @binding(0) var<storage, read> logits: array<u32>;
@group(0) @binding(1) var<storage, read> settings: array<SamplerRow>;
@group(0) @binding(2) var<storage, read_write> scaled: array<u32>;
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
    for (var token = local; token < params.vocabulary; token += 256u) {
        let key = key_of(logits[row_at + token]);
        most = max(most, key);
        count += select(1.0, 0.0, is_no_logit(key));
    }
    atomicMax(&largest_key, most);
    count = workgroup_total(count, local);
    let largest = atomicLoad(&largest_key);
    var mass = 0.0;
    var product = 0.0;
    for (var token = local; token < params.vocabulary; token += 256u) {
        let key = key_of(logits[row_at + token]);
        if !is_no_logit(key) {
            let below = below_largest(key, largest);
            let weight = exp(below);
            mass += weight;
            // Not with 0 times a number far below.
            product += select(0.0, weight * below, weight > 0.0);
        }
    }
    mass = max(workgroup_total(mass, local), 1.0);
    let entropy = log(mass) - workgroup_total(product, local) / mass;
    let share = clamp(entropy / log(max(count, 2.0)), 1e-30, 1.0);
    let inverse = settings[row].inverse_temperature;
    let middle = 1.0 / max(inverse, 1e-20);
    let low = max(0.0, middle - settings[row].dynatemp_range);
    let high = middle + settings[row].dynatemp_range;
    let temperature = max(low + (high - low) * pow(share, settings[row].dynatemp_exponent), LEAST_TEMPERATURE);
    // Kernels after this one divide by the temperature of the request.
    let scale = middle / temperature;
    let changes = settings[row].dynatemp_range > 0.0 && inverse > 0.0 && count > 1.0 && !is_no_logit(largest);
    for (var token = local; token < params.vocabulary; token += 256u) {
        let bits = logits[row_at + token];
        let key = key_of(bits);
        let is_scaled = changes && !is_no_logit(key);
        scaled[row_at + token] = select(bits, bitcast<u32>(below_largest(key, largest) * scale), is_scaled);
    }
}
