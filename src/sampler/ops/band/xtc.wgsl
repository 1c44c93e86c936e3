struct Params { vocabulary: u32, mass_bits: u32, draw: u32 }

@group(0) @binding(0) var<storage, read> logits: array<u32>;
@group(0) @binding(1) var<storage, read> settings: array<SamplerRow>;
@group(0) @binding(2) var<storage, read> state: array<u32>;
@group(0) @binding(3) var<storage, read> masses: array<u32>;
@group(0) @binding(4) var<storage, read_write> band: array<atomic<u32>>;
@group(0) @binding(20) var<uniform> params: Params;

#import "sampler_row"
#import "truncation"
#import "band"
#import "pcg3d"

const STRIDE: u32 = GROUPS * 256u;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = group.y;
    let draw = pcg3d(vec3<u32>(settings[row].seed_low ^ params.draw, settings[row].seed_high, state[row * 4u + 1u])).x >> 8u;
    if f32(draw) * 5.9604645e-8 >= settings[row].xtc_probability {
        return;
    }
    var mass = vec2<u32>(0u);
    for (var i = 0u; i < GROUPS; i++) {
        let at = (row * MAX_GROUPS + i) * 2u;
        mass = mass_sum(mass, vec2<u32>(masses[at], masses[at + 1u]));
    }
    let wanted = settings[row].xtc_threshold * mass_as_float(mass);
    // Another truncation may have cut the band: its tokens are then at least this deep.
    let kept = vec4<u32>(
        atomicLoad(&band[row * BAND]),
        atomicLoad(&band[row * BAND + 1u]),
        atomicLoad(&band[row * BAND + 2u]),
        atomicLoad(&band[row * BAND + 3u]),
    );
    let octaves = settings[row].octaves;
    var deepest = kept.z;
    for (var token = group.x * 256u + local; token < params.vocabulary; token += STRIDE) {
        let key = key_of(logits[row * params.vocabulary + token]);
        let depth = depth_of(key, kept.x, octaves);
        if is_kept(key, depth, kept) && mass_as_float(weight_of(depth, params.mass_bits)) >= wanted {
            deepest = max(deepest, depth);
        }
    }
    if deepest != kept.z {
        atomicMax(&band[row * BAND + BAND_LOW], deepest);
    }
}
