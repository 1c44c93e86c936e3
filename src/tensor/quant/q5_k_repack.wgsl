// One invocation gathers the quants of one block of 32; the first of a superblock of the file, 44 words, writes its header.
#import "repack_k"

@group(0) @binding(10) var<storage, read_write> weight_quants: array<vec4<u32>>;
@group(0) @binding(11) var<storage, read_write> weight_scales: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let block = (group.y * groups.x + group.x) * 64u + local;
    if block >= params.blocks {
        return;
    }
    let to = params.first_block + block;
    let source = block / 8u * 176u;
    let i = block % 8u;
    let quants = source + 48u + i / 2u * 32u;
    let shift = i % 2u * 4u;
    weight_quants[to] = vec4<u32>(
        nibbles_of(quants, shift, 0u), nibbles_of(quants, shift, 1u), nibbles_of(quants, shift, 2u), nibbles_of(quants, shift, 3u),
    );
    let at = to / 8u * 12u;
    weight_scales[at + 4u + i] = single_bits_of(source + 16u, i);
    if i == 0u {
        let header = k_header(source);
        weight_scales[at] = header.x;
        weight_scales[at + 1u] = header.y;
        weight_scales[at + 2u] = header.z;
        weight_scales[at + 3u] = header.w;
    }
}
