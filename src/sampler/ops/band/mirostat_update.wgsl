struct Params { vocabulary: u32, mass_bits: u32 }

@group(0) @binding(0) var<storage, read> logits: array<u32>;
@group(0) @binding(1) var<storage, read> settings: array<SamplerRow>;
@group(0) @binding(2) var<storage, read> band: array<u32>;
@group(0) @binding(3) var<storage, read> masses: array<u32>;
@group(0) @binding(4) var<storage, read> token: array<u32>;
@group(0) @binding(5) var<storage, read_write> mu: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "sampler_row"
#import "truncation"
#import "band"
#import "log2_mass"

@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    let row = group.x;
    let tau = settings[row].mirostat_tau;
    if tau <= 0.0 || token[row] >= params.vocabulary {
        return;
    }
    var mass = vec2<u32>(0u);
    for (var i = 0u; i < GROUPS; i++) {
        let at = (row * MAX_GROUPS + i) * 2u;
        mass = mass_sum(mass, vec2<u32>(masses[at], masses[at + 1u]));
    }
    let key = key_of(logits[row * params.vocabulary + token[row]]);
    let depth = depth_of(key, band[row * BAND], settings[row].octaves);
    let surprise = f32(depth) * 5.9604645e-8 + log2_mass(mass, params.mass_bits);
    mu[row] -= settings[row].mirostat_eta * (surprise - tau);
}
