// One invocation writes one block of 32 weights; columns past the row's end become zero.
#import "repack"

@group(0) @binding(10) var<storage, read_write> weight_halves: array<u32>;

fn half(row: u32, column: u32) -> u32 {
    if column >= params.columns {
        return 0u;
    }
    let index = row * params.columns + column;
    return (file[index / 2u] >> ((index & 1u) * 16u)) & 0xffffu;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let block = (group.y * groups.x + group.x) * 64u + local;
    if block >= params.blocks {
        return;
    }
    let row = block / params.blocks_per_row;
    let column = (block % params.blocks_per_row) * 32u;
    for (var i = 0u; i < 16u; i++) {
        let c = column + i * 2u;
        weight_halves[(params.first_block + block) * 16u + i] = half(row, c) | (half(row, c + 1u) << 16u);
    }
}
