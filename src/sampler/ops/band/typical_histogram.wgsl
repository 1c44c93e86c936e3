struct Params { vocabulary: u32, mass_bits: u32, digit: u32 }

@group(0) @binding(0) var<storage, read> logits: array<u32>;
@group(0) @binding(1) var<storage, read> settings: array<SamplerRow>;
@group(0) @binding(2) var<storage, read> band: array<u32>;
@group(0) @binding(3) var<storage, read> moments: array<u32>;
@group(0) @binding(4) var<storage, read_write> tally: array<atomic<u32>>;
@group(0) @binding(20) var<uniform> params: Params;

#import "sampler_row"
#import "truncation"
#import "tally_sums"
#import "band"
#import "typical_cut"

const STRIDE: u32 = GROUPS * 256u;

var<workgroup> mean: u32;
var<workgroup> lows: array<atomic<u32>, BINS>;
var<workgroup> highs: array<atomic<u32>, BINS>;

// Whether depth · mass is at most the product.
fn is_at_most(depth: u32, mass: vec2<u32>, product: vec3<u32>) -> bool {
    let low = mass.x * depth;
    let middle = high_product(mass.x, depth);
    let other = mass.y * depth;
    let sum = middle + other;
    let high = high_product(mass.y, depth) + u32(sum < middle);
    if high != product.z {
        return high < product.z;
    }
    if sum != product.y {
        return sum < product.y;
    }
    return low <= product.x;
}

// Sums the moments and divides them; the result is the same in all workgroups.
fn find_mean(row: u32, is_first: bool) {
    var mass = vec2<u32>(0u);
    var product = vec3<u32>(0u);
    for (var group = 0u; group < GROUPS; group++) {
        let at = (row * MAX_GROUPS + group) * MOMENTS;
        mass = mass_sum(mass, vec2<u32>(moments[at], moments[at + 1u]));
        let low = product.x + moments[at + 2u];
        let middle = mass_sum(product.yz, vec2<u32>(moments[at + 3u], moments[at + 4u]));
        let carried = mass_sum(middle, vec2<u32>(u32(low < product.x), 0u));
        product = vec3<u32>(low, carried);
    }
    var quotient = 0u;
    if (mass.x | mass.y) != 0u {
        for (var bit = 1u << 29u; bit != 0u; bit >>= 1u) {
            if is_at_most(quotient | bit, mass, product) {
                quotient |= bit;
            }
        }
    }
    mean = quotient;
    if is_first {
        atomicStore(&tally[row * TYPICAL], quotient);
        atomicStore(&tally[row * TYPICAL + 1u], mass.x);
        atomicStore(&tally[row * TYPICAL + 2u], mass.y);
    }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = group.y;
    for (var bin = local; bin < BINS; bin += 256u) {
        atomicStore(&lows[bin], 0u);
        atomicStore(&highs[bin], 0u);
    }
    var digits = vec3<u32>(0u);
    if params.digit == 0u {
        if local == 0u {
            find_mean(row, group.x == 0u);
        }
    } else {
        let part = settings[row].typical_p;
        digits = typical_cut(row, params.digit - 1u, wanted_mass(part, typical_total(row)), local);
        if local == 0u {
            mean = atomicLoad(&tally[row * TYPICAL]);
            if group.x == 0u {
                let at = row * TYPICAL + 4u * params.digit;
                atomicStore(&tally[at], digits.x);
                atomicStore(&tally[at + 1u], digits.y);
                atomicStore(&tally[at + 2u], digits.z);
            }
        }
    }
    workgroupBarrier();
    let kept = vec4<u32>(band[row * BAND], band[row * BAND + 1u], band[row * BAND + 2u], band[row * BAND + 3u]);
    let octaves = settings[row].octaves;
    let shift = 20u - 10u * params.digit;
    for (var token = group.x * 256u + local; token < params.vocabulary; token += STRIDE) {
        let key = key_of(logits[row * params.vocabulary + token]);
        let depth = depth_of(key, kept.x, octaves);
        let distance = max(depth, mean) - min(depth, mean);
        // There are no digits before the first.
        let agrees = params.digit == 0u || (distance >> (shift + 10u)) == digits.x;
        if is_kept(key, depth, kept) && agrees {
            let bin = (distance >> shift) % BINS;
            let weight = weight_of(depth, params.mass_bits);
            let old = atomicAdd(&lows[bin], weight.x);
            atomicAdd(&highs[bin], weight.y + u32(old + weight.x < old));
        }
    }
    workgroupBarrier();
    let at = row * TYPICAL + HEADER + 2u * params.digit * BINS;
    for (var bin = local; bin < BINS; bin += 256u) {
        let low = atomicLoad(&lows[bin]);
        let high = atomicLoad(&highs[bin]);
        if (low | high) != 0u {
            let old = atomicAdd(&tally[at + bin], low);
            atomicAdd(&tally[at + BINS + bin], high + u32(old + low < old));
        }
    }
}
