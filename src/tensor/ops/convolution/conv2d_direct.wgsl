// Without workgroup memory: each invocation computes four positions, 64 apart, of ROWS channels of a group: of one, of four (ROWS_4),
// or of eight, which read as much of the input (ROWS_4 and ROWS_8).
#import "conv2d_tensors"

@group(0) @binding(1) var<storage, read> weight: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    // Rows are the fastest index: those that share windows run at the same time.
    let tile = id.y * grid.x + id.x;
    let row_tiles = (params.rows + ROWS - 1u) / ROWS;
    let group = tile / row_tiles % params.groups;
    let row = tile % row_tiles * ROWS;
    let plane = params.out_height * params.out_width;
    let first = tile / row_tiles / params.groups * 256u + local;
    if first >= params.images * plane {
        return;
    }
    // Positions and channels past the end repeat the last one; only `store` leaves them out.
    let offsets = vec4<u32>(0u, 64u, 128u, 192u);
    let positions = min(vec4<u32>(first) + offsets, vec4<u32>(params.images * plane - 1u));
    let places = positions % plane;
    // In the padding before the input they are negative, which as u32 is past its end.
    let tops = places / params.out_width * params.stride_y - params.padding_y;
    let lefts = places % params.out_width * params.stride_x - params.padding_x;
    let depth = params.group_channels * params.kernel_height * params.kernel_width;
    let weights = min(vec4<u32>(row) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.rows - 1u)) * depth
        + group * params.rows * depth;
#ifdef ROWS_8
    let more_weights = min(vec4<u32>(row) + vec4<u32>(4u, 5u, 6u, 7u), vec4<u32>(params.rows - 1u)) * depth
        + group * params.rows * depth;
#endif

    var sum0 = vec4<f32>(0.0);
#ifdef ROWS_4
    var sum1 = vec4<f32>(0.0);
    var sum2 = vec4<f32>(0.0);
    var sum3 = vec4<f32>(0.0);
#endif
#ifdef ROWS_8
    var sum4 = vec4<f32>(0.0);
    var sum5 = vec4<f32>(0.0);
    var sum6 = vec4<f32>(0.0);
    var sum7 = vec4<f32>(0.0);
#endif
    var planes = (positions / plane * params.channels + group * params.group_channels) * params.height * params.width;
    var k = 0u;
    for (var channel = 0u; channel < params.group_channels; channel++) {
        for (var ky = 0u; ky < params.kernel_height; ky++) {
            let rows = tops + ky * params.dilation_y;
            let lines = planes + rows * params.width;
            for (var kx = 0u; kx < params.kernel_width; kx++) {
                let columns = lefts + kx * params.dilation_x;
                let inside = (rows < vec4<u32>(params.height)) & (columns < vec4<u32>(params.width));
                let at = select(vec4<u32>(0u), lines + columns, inside);
                let values = select(vec4<f32>(0.0), vec4<f32>(x[at.x], x[at.y], x[at.z], x[at.w]), inside);
                sum0 += weight[weights.x + k] * values;
#ifdef ROWS_4
                sum1 += weight[weights.y + k] * values;
                sum2 += weight[weights.z + k] * values;
                sum3 += weight[weights.w + k] * values;
#endif
#ifdef ROWS_8
                sum4 += weight[more_weights.x + k] * values;
                sum5 += weight[more_weights.y + k] * values;
                sum6 += weight[more_weights.z + k] * values;
                sum7 += weight[more_weights.w + k] * values;
#endif
                k++;
            }
        }
        planes += params.height * params.width;
    }
    for (var i = 0u; i < 4u; i++) {
        let position = first + 64u * i;
        store(group, row, position, sum0[i]);
#ifdef ROWS_4
        store(group, row + 1u, position, sum1[i]);
        store(group, row + 2u, position, sum2[i]);
        store(group, row + 3u, position, sum3[i]);
#endif
#ifdef ROWS_8
        store(group, row + 4u, position, sum4[i]);
        store(group, row + 5u, position, sum5[i]);
        store(group, row + 6u, position, sum6[i]);
        store(group, row + 7u, position, sum7[i]);
#endif
    }
}
