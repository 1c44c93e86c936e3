// One invocation turns one block of the file, 22 bytes, into four words of nibbles and one of fifth bits; that of an even block writes
// the scales of two.
#import "repack"
#import "fifth_bits"

@group(0) @binding(10) var<storage, read_write> weight_quants: array<vec4<u32>>;
@group(0) @binding(11) var<storage, read_write> weight_scales: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let block = (group.y * groups.x + group.x) * 64u + local;
    if block >= params.blocks {
        return;
    }
    let to = params.first_block + block;
    let source = block * 22u;
    weight_quants[to] =
        vec4<u32>(word_at(source + 6u), word_at(source + 10u), word_at(source + 14u), word_at(source + 18u));
    let at = to / 2u * 3u;
    weight_scales[at + (to & 1u)] = fifth_bits(word_at(source + 2u));
    if block % 2u == 0u {
        var scales = half_at(source);
        if block + 1u < params.blocks {
            scales |= half_at(source + 22u) << 16u;
        }
        weight_scales[at + 2u] = scales;
    }
}
