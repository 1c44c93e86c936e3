// One invocation gathers the quants of one block of 32; the first of a superblock of the file, 21 words, writes its scales.
#import "repack_k"

@group(0) @binding(10) var<storage, read_write> weight_quants: array<vec2<u32>>;
@group(0) @binding(11) var<storage, read_write> weight_scales: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let block = (group.y * groups.x + group.x) * 64u + local;
    if block >= params.blocks {
        return;
    }
    let to = params.first_block + block;
    let source = block / 8u * 84u;
    let i = block % 8u;
    let quants = source + 16u + i / 4u * 32u;
    weight_quants[to] = vec2<u32>(quarters_of(quants, i % 4u * 2u), quarters_of(quants + 16u, i % 4u * 2u));
    if i == 0u {
        let at = to / 8u * 5u;
        weight_scales[at] = word_at(source + 80u);
        for (var word = 0u; word < 4u; word++) {
            weight_scales[at + 1u + word] = word_at(source + word * 4u);
        }
    }
}
