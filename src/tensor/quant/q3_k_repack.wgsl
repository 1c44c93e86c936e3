// One invocation gathers the quants of one block of 32; the first of a superblock of the file, 110 bytes, writes its scales, and every
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
    let source = block / 8u * 110u;
    let i = block % 8u;
    let super_block = to / 8u;
    let quants = source + 32u + i / 4u * 32u;
    weight_quants[super_block * 24u + i * 2u] = quarters_of(quants, i % 4u * 2u);
    weight_quants[super_block * 24u + i * 2u + 1u] = quarters_of(quants + 16u, i % 4u * 2u);
    weight_quants[super_block * 24u + 16u + i] = single_bits_of(source, i);
    let at = super_block / 2u * 7u;
    if i == 0u {
        // Scale j has its low bits in byte j % 8, low nibble first, and its high ones in byte 8 + j % 4.
        let first = word_at(source + 96u);
        let second = word_at(source + 100u);
        let rest = word_at(source + 104u);
        var low = vec2<u32>(0u);
        var high = 0u;
        for (var j = 0u; j < 4u; j++) {
            let bytes = (vec2<u32>(first, second) >> vec2<u32>(j * 8u)) & vec2<u32>(255u);
            low.x |= ((bytes.x & 15u) << (j * 4u)) | ((bytes.y & 15u) << (j * 4u + 16u));
            low.y |= ((bytes.x >> 4u) << (j * 4u)) | ((bytes.y >> 4u) << (j * 4u + 16u));
            for (var k = 0u; k < 4u; k++) {
                high |= ((rest >> (j * 8u + k * 2u)) & 3u) << ((k * 4u + j) * 2u);
            }
        }
        let scales = at + super_block % 2u * 3u;
        weight_scales[scales] = low.x;
        weight_scales[scales + 1u] = low.y;
        weight_scales[scales + 2u] = high;
    }
    if block % 16u == 0u {
        var factors = half_at(source + 108u);
        if block + 8u < params.blocks {
            factors |= half_at(source + 218u) << 16u;
        }
        weight_scales[at + 6u] = factors;
    }
}
