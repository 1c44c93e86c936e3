struct Params { vocabulary: u32, mass_bits: u32, typical: u32 }

@group(0) @binding(0) var<storage, read> logits: array<u32>;
@group(0) @binding(1) var<storage, read> settings: array<SamplerRow>;
@group(0) @binding(2) var<storage, read> band: array<u32>;
@group(0) @binding(3) var<storage, read_write> moments: array<u32>;
@group(0) @binding(4) var<storage, read_write> tally: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "sampler_row"
#import "truncation"
#import "band"

const STRIDE: u32 = GROUPS * 256u;

// Word by word, from the lowest.
var<workgroup> sums: array<atomic<u32>, 5>;

fn sum_of_three(a: vec3<u32>, b: vec3<u32>) -> vec3<u32> {
    let low = a.x + b.x;
    let carry = u32(low < a.x);
    let half = a.y + b.y;
    let middle = half + carry;
    return vec3<u32>(low, middle, a.z + b.z + u32(half < a.y) + u32(middle < half));
}

// A mass times a depth.
fn product(mass: vec2<u32>, depth: u32) -> vec3<u32> {
    let low = vec3<u32>(mass.x * depth, high_product(mass.x, depth), 0u);
    return sum_of_three(low, vec3<u32>(0u, mass.y * depth, high_product(mass.y, depth)));
}

// Adds to a word and returns the carry.
fn add_word(word: u32, value: u32, carry: u32) -> u32 {
    let with_carry = value + carry;
    let old = atomicAdd(&sums[word], with_carry);
    return u32(with_carry < value) + u32(old + with_carry < old);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = group.y;
    if local < MOMENTS {
        atomicStore(&sums[local], 0u);
    }
    for (var i = group.x * 256u + local; i < params.typical; i += STRIDE) {
        tally[row * params.typical + i] = 0u;
    }
    workgroupBarrier();
    let kept = vec4<u32>(band[row * BAND], band[row * BAND + 1u], band[row * BAND + 2u], band[row * BAND + 3u]);
    let octaves = settings[row].octaves;
    var mass = vec2<u32>(0u);
    var sum = vec3<u32>(0u);
    for (var token = group.x * 256u + local; token < params.vocabulary; token += STRIDE) {
        let key = key_of(logits[row * params.vocabulary + token]);
        let depth = depth_of(key, kept.x, octaves);
        if is_kept(key, depth, kept) {
            let weight = weight_of(depth, params.mass_bits);
            mass = mass_sum(mass, weight);
            sum = sum_of_three(sum, product(weight, depth));
        }
    }
    add_word(1u, mass.y, add_word(0u, mass.x, 0u));
    add_word(4u, sum.z, add_word(3u, sum.y, add_word(2u, sum.x, 0u)));
    workgroupBarrier();
    if local < MOMENTS {
        moments[(row * MAX_GROUPS + group.x) * MOMENTS + local] = atomicLoad(&sums[local]);
    }
    // The other workgroups do not exist.
    if group.x == 0u {
        for (var i = GROUPS * MOMENTS + local; i < MAX_GROUPS * MOMENTS; i += 256u) {
            moments[row * MAX_GROUPS * MOMENTS + i] = 0u;
        }
    }
}
