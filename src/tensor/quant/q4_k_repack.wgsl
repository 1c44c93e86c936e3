// One invocation gathers the nibbles of one block of 32; the first of a superblock of the file, 36 words, writes its header.
#import "repack_k"

@group(0) @binding(10) var<storage, read_write> weight_quants: array<vec4<u32>>;
@group(0) @binding(11) var<storage, read_write> weight_scales: array<vec4<u32>>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let block = (group.y * groups.x + group.x) * 64u + local;
    if block >= params.blocks {
        return;
    }
    let to = params.first_block + block;
    let source = block / 8u * 144u;
    let i = block % 8u;
    let quants = source + 16u + i / 2u * 32u;
    let shift = i % 2u * 4u;
    weight_quants[to] = vec4<u32>(
        nibbles_of(quants, shift, 0u), nibbles_of(quants, shift, 1u), nibbles_of(quants, shift, 2u), nibbles_of(quants, shift, 3u),
    );
    if i == 0u {
        weight_scales[to / 8u] = k_header(source);
    }
}
