// One invocation turns one block of the file, five words, into four words of quants and one of scale and minimum.
#import "repack"

@group(0) @binding(10) var<storage, read_write> weight_quants: array<vec4<u32>>;
@group(0) @binding(11) var<storage, read_write> weight_scales: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let block = (group.y * groups.x + group.x) * 64u + local;
    if block >= params.blocks {
        return;
    }
    let to = params.first_block + block;
    let at = block * 5u;
    weight_quants[to] = vec4<u32>(file[at + 1u], file[at + 2u], file[at + 3u], file[at + 4u]);
    weight_scales[to] = file[at];
}
