// One invocation turns two blocks of the file, 36 bytes or nine whole words, into two words of quants and one of scales.
#import "repack"

@group(0) @binding(10) var<storage, read_write> weight_quants: array<vec4<u32>>;
@group(0) @binding(11) var<storage, read_write> weight_scales: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let pair = (group.y * groups.x + group.x) * 64u + local;
    if pair * 2u >= params.blocks {
        return;
    }
    let at = pair * 9u;
    let w0 = file[at];
    let w1 = file[at + 1u];
    let w2 = file[at + 2u];
    let w3 = file[at + 3u];
    let w4 = file[at + 4u];
    let to = params.first_block / 2u + pair;
    // The first block begins with its scale, so its quants are two bytes off the words.
    weight_quants[to * 2u] = vec4<u32>(
        (w0 >> 16u) | (w1 << 16u), (w1 >> 16u) | (w2 << 16u), (w2 >> 16u) | (w3 << 16u), (w3 >> 16u) | (w4 << 16u),
    );
    weight_quants[to * 2u + 1u] = vec4<u32>(file[at + 5u], file[at + 6u], file[at + 7u], file[at + 8u]);
    weight_scales[to] = (w0 & 0xffffu) | (w4 & 0xffff0000u);
}
