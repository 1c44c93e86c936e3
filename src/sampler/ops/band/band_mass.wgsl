struct Params { vocabulary: u32, mass_bits: u32 }

@group(0) @binding(0) var<storage, read> logits: array<u32>;
@group(0) @binding(1) var<storage, read> settings: array<SamplerRow>;
@group(0) @binding(2) var<storage, read> band: array<u32>;
@group(0) @binding(3) var<storage, read_write> masses: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "sampler_row"
#import "truncation"
#import "band"

const STRIDE: u32 = GROUPS * 256u;

var<workgroup> low: atomic<u32>;
var<workgroup> high: atomic<u32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = group.y;
    if local == 0u {
        atomicStore(&low, 0u);
        atomicStore(&high, 0u);
    }
    workgroupBarrier();
    let kept = vec4<u32>(band[row * BAND], band[row * BAND + 1u], band[row * BAND + 2u], band[row * BAND + 3u]);
    let octaves = settings[row].octaves;
    var mass = vec2<u32>(0u);
    for (var token = group.x * 256u + local; token < params.vocabulary; token += STRIDE) {
        let key = key_of(logits[row * params.vocabulary + token]);
        let depth = depth_of(key, kept.x, octaves);
        if is_kept(key, depth, kept) {
            mass = mass_sum(mass, weight_of(depth, params.mass_bits));
        }
    }
    let old = atomicAdd(&low, mass.x);
    atomicAdd(&high, mass.y + u32(old + mass.x < old));
    workgroupBarrier();
    let at = row * 2u * MAX_GROUPS;
    if local == 0u {
        masses[at + 2u * group.x] = atomicLoad(&low);
        masses[at + 2u * group.x + 1u] = atomicLoad(&high);
    }
    // The other workgroups do not exist.
    if group.x == 0u && local >= 2u * GROUPS && local < 2u * MAX_GROUPS {
        masses[at + local] = 0u;
    }
}
