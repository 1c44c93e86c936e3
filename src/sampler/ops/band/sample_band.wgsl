struct Params { vocabulary: u32, mass_bits: u32 }

@group(0) @binding(0) var<storage, read> logits: array<u32>;
@group(0) @binding(1) var<storage, read> settings: array<SamplerRow>;
@group(0) @binding(2) var<storage, read> border: array<u32>;
@group(0) @binding(3) var<storage, read> mu: array<f32>;
@group(0) @binding(4) var<storage, read_write> band: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "sampler_row"
#import "truncation"
#import "tally_sums"
#import "thresholds"
#import "band"
#import "log2_mass"

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = group.x;
    let border_at = row * BORDER;
    start_thresholds(local);
    workgroupBarrier();
    let list = list_of(row);
    let walk = walk_of(row, list.whole, local);
    if list.few {
        gather_few(walk);
    }
    workgroupBarrier();
    let least_key = least_key_of(row, list.few, walk, local);
    if local != 0u {
        return;
    }
    var high = min(settings[row].min_p_depth, REST - 1u);
    let first = border[border_at + P_FIRST];
    let end = select(border[border_at + P_LAST], border[border_at + K_BIN], first == NONE);
    if end != NONE {
        high = min(high, ((end + 1u) << border[border_at + SHIFT]) - 1u);
    }
    if settings[row].mirostat_tau > 0.0 {
        let total = vec2<u32>(border[border_at + TOTAL], border[border_at + TOTAL + 1u]);
        let room = mu[row] - log2_mass(total, params.mass_bits);
        // Tokens past 48 octaves are never drawn.
        high = min(high, u32(clamp(room, 0.0, 48.0) * 16777216.0));
    }
    band[row * BAND] = border[border_at + LARGEST];
    band[row * BAND + 1u] = least_key;
    band[row * BAND + 2u] = 0u;
    band[row * BAND + 3u] = high;
}
