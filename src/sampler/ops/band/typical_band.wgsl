@group(0) @binding(0) var<storage, read> settings: array<SamplerRow>;
@group(0) @binding(1) var<storage, read_write> tally: array<atomic<u32>>;
@group(0) @binding(2) var<storage, read_write> band: array<u32>;

#import "sampler_row"
#import "truncation"
#import "tally_sums"
#import "band"
#import "typical_cut"

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = group.x;
    let part = settings[row].typical_p;
    let distance = typical_cut(row, DIGITS - 1u, wanted_mass(part, typical_total(row)), local).x;
    if local == 0u && part < 1.0 {
        let mean = atomicLoad(&tally[row * TYPICAL]);
        let at = row * BAND + BAND_LOW;
        band[at] = max(band[at], mean - min(mean, distance));
        band[at + 1u] = min(band[at + 1u], mean + distance);
    }
}
