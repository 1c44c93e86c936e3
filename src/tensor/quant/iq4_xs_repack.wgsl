// One invocation copies the quants of one block of 32; the first of a superblock (34 words in the file) also copies its scales.
#import "repack"

@group(0) @binding(10) var<storage, read_write> weight_quants: array<vec4<u32>>;
@group(0) @binding(11) var<storage, read_write> weight_scales: array<vec2<u32>>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let block = (group.y * groups.x + group.x) * 64u + local;
    if block >= params.blocks {
        return;
    }
    let to = params.first_block + block;
    let source = block / 8u * 34u;
    let at = source + 2u + block % 8u * 4u;
    weight_quants[to] = vec4<u32>(file[at], file[at + 1u], file[at + 2u], file[at + 3u]);
    if block % 8u == 0u {
        weight_scales[to / 8u] = vec2<u32>(file[source], file[source + 1u]);
    }
}
