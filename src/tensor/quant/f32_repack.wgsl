// One invocation writes one block of 32 weights; columns past the row's end become zero.
#import "repack"

@group(0) @binding(10) var<storage, read_write> weight_values: array<vec4<f32>>;

fn value(row: u32, column: u32) -> f32 {
    if column >= params.columns {
        return 0.0;
    }
    return bitcast<f32>(file[row * params.columns + column]);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let block = (group.y * groups.x + group.x) * 64u + local;
    if block >= params.blocks {
        return;
    }
    let row = block / params.blocks_per_row;
    let column = (block % params.blocks_per_row) * 32u;
    for (var i = 0u; i < 8u; i++) {
        let c = column + i * 4u;
        weight_values[(params.first_block + block) * 8u + i] =
            vec4<f32>(value(row, c), value(row, c + 1u), value(row, c + 2u), value(row, c + 3u));
    }
}
