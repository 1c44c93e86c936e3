// One invocation gathers the quants of one block of 32; the first of a superblock of the file, 210 bytes, writes its scales, and every
// other one of these the factors of two.
#import "repack_k"

@group(0) @binding(10) var<storage, read_write> weight_quants: array<u32>;
@group(0) @binding(11) var<storage, read_write> weight_scales: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let block = (group.y * groups.x + group.x) * 64u + local;
    if block >= params.blocks {
        return;
    }
    let to = params.first_block + block;
    let source = block / 8u * 210u;
    let i = block % 8u;
    let super_block = to / 8u;
    let low = source + i / 4u * 64u + i % 2u * 32u;
    let high = source + 128u + i / 4u * 32u;
    for (var word = 0u; word < 4u; word++) {
        weight_quants[super_block * 48u + i * 4u + word] = nibbles_of(low, i % 4u / 2u * 4u, word);
    }
    weight_quants[super_block * 48u + 32u + i * 2u] = quarters_of(high, i % 4u * 2u);
    weight_quants[super_block * 48u + 32u + i * 2u + 1u] = quarters_of(high + 16u, i % 4u * 2u);
    let at = super_block / 2u * 9u;
    if i == 0u {
        for (var word = 0u; word < 4u; word++) {
            weight_scales[at + super_block % 2u * 4u + word] = word_at(source + 192u + word * 4u);
        }
    }
    if block % 16u == 0u {
        var factors = half_at(source + 208u);
        if block + 8u < params.blocks {
            factors |= half_at(source + 418u) << 16u;
        }
        weight_scales[at + 8u] = factors;
    }
}
