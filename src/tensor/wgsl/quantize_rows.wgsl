// Shared by the kernels that quantise rows of a file on their way to the GPU: one invocation quantises two blocks of 32 weights,
// whose scales share a word. The kernel defines `quantize(block, to) -> u32`, which writes a block's quants and returns its scale as f16.
#import "file_weights"

@group(0) @binding(10) var<storage, read_write> weight_quants: array<vec4<u32>>;
@group(0) @binding(11) var<storage, read_write> weight_scales: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let block = ((group.y * groups.x + group.x) * 64u + local) * 2u;
    if block >= params.blocks {
        return;
    }
    let to = params.first_block + block;
    var scales = quantize(block, to);
    if block + 1u < params.blocks {
        scales |= quantize(block + 1u, to + 1u) << 16u;
    }
    weight_scales[to / 2u] = scales;
}
