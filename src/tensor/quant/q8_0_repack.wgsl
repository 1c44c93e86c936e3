// One invocation turns two blocks of the file, 68 bytes or seventeen whole words, into four words of quants and one of
// scales.
#import "repack"

@group(0) @binding(10) var<storage, read_write> weight_quants: array<vec4<u32>>;
@group(0) @binding(11) var<storage, read_write> weight_scales: array<u32>;

// The word that begins two bytes into `file[index]`.
fn off_by_two(index: u32) -> u32 {
    return (file[index] >> 16u) | (file[index + 1u] << 16u);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let pair = (group.y * groups.x + group.x) * 64u + local;
    if pair * 2u >= params.blocks {
        return;
    }
    let at = pair * 17u;
    let to = params.first_block / 2u + pair;
    // The first block begins with its scale, so its quants are two bytes off the words.
    weight_quants[to * 4u] = vec4<u32>(off_by_two(at), off_by_two(at + 1u), off_by_two(at + 2u), off_by_two(at + 3u));
    weight_quants[to * 4u + 1u] =
        vec4<u32>(off_by_two(at + 4u), off_by_two(at + 5u), off_by_two(at + 6u), off_by_two(at + 7u));
    weight_quants[to * 4u + 2u] = vec4<u32>(file[at + 9u], file[at + 10u], file[at + 11u], file[at + 12u]);
    weight_quants[to * 4u + 3u] = vec4<u32>(file[at + 13u], file[at + 14u], file[at + 15u], file[at + 16u]);
    weight_scales[to] = (file[at] & 0xffffu) | (file[at + 8u] & 0xffff0000u);
}
