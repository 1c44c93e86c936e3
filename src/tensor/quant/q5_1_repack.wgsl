// One invocation turns one block of the file, six words, into four words of nibbles and two of scale, minimum and fifth bits.
#import "repack"
#import "fifth_bits"

@group(0) @binding(10) var<storage, read_write> weight_quants: array<vec4<u32>>;
@group(0) @binding(11) var<storage, read_write> weight_scales: array<vec2<u32>>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let block = (group.y * groups.x + group.x) * 64u + local;
    if block >= params.blocks {
        return;
    }
    let to = params.first_block + block;
    let at = block * 6u;
    weight_quants[to] = vec4<u32>(file[at + 2u], file[at + 3u], file[at + 4u], file[at + 5u]);
    weight_scales[to] = vec2<u32>(file[at], fifth_bits(file[at + 1u]));
}
