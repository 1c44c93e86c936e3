// Each invocation computes four columns, one stride apart, of one row of four output channels of a group (ROWS_4) or of one: rows
// are the output channels. The same elements of the kernel reach all four columns, from neighbouring inputs.
struct Params {
    images: u32, channels: u32, height: u32, width: u32,
    rows: u32, group_channels: u32, groups: u32, out_height: u32, out_width: u32, step: u32, lanes: u32,
    kernel_height: u32, kernel_width: u32, stride_y: u32, stride_x: u32,
    padding_y: u32, padding_x: u32, dilation_y: u32, dilation_x: u32,
    period_y: u32, gap_y: u32, period_x: u32, gap_x: u32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
#ifdef BIAS
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;
#else
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
#endif
@group(0) @binding(20) var<uniform> params: Params;

#ifdef ROWS_4
const ROWS = 4u;
#else
const ROWS = 1u;
#endif

// The first element of the kernel along an axis that reaches an output, and the place of the input that it comes from, which may
// lie outside. `place` counts from the edge of the padding. If none reaches it, `k` is past the end of the kernel.
struct Tap { k: u32, input: i32 }

fn first_tap(place: u32, stride: u32, dilation: u32, period: u32) -> Tap {
    for (var k = 0u; k < period; k++) {
        let distance = i32(place) - i32(k * dilation);
        if distance % i32(stride) == 0 {
            return Tap(k, distance / i32(stride));
        }
    }
    return Tap(0xffffffffu, -1);
}

fn store(image: u32, group: u32, row: u32, y: u32, column: u32, values: vec4<f32>) {
    if row < params.rows {
        let channel = group * params.rows + row;
        let start = ((image * params.groups * params.rows + channel) * params.out_height + y) * params.out_width;
        for (var i = 0u; i < 4u; i++) {
            let at = column + i * params.step;
            if at < params.out_width {
#ifdef BIAS
                out[start + at] = values[i] + bias[channel];
#else
                out[start + at] = values[i];
#endif
            }
        }
    }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    // Rows are the fastest index: those that share inputs run at the same time.
    let tile = id.y * grid.x + id.x;
    let row_tiles = (params.rows + ROWS - 1u) / ROWS;
    let group = tile / row_tiles % params.groups;
    let row = tile % row_tiles * ROWS;
    let item = tile / row_tiles / params.groups * 64u + local;
    if item >= params.images * params.out_height * params.lanes {
        return;
    }
    let image = item / params.lanes / params.out_height;
    let y = item / params.lanes % params.out_height;
    let lane = item % params.lanes;
    let column = lane / params.step * (4u * params.step) + lane % params.step;

    let plane = params.height * params.width;
    let kernel = params.kernel_height * params.kernel_width;
    // Channels past the end repeat the last one; only `store` leaves them out.
    let rows = min(vec4<u32>(row) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.rows - 1u)) * kernel;
    let first_channel = group * params.group_channels;
    var sum0 = vec4<f32>(0.0);
#ifdef ROWS_4
    var sum1 = vec4<f32>(0.0);
    var sum2 = vec4<f32>(0.0);
    var sum3 = vec4<f32>(0.0);
#endif
    let left = first_tap(column + params.padding_x, params.stride_x, params.dilation_x, params.period_x);
    var vertical = first_tap(y + params.padding_y, params.stride_y, params.dilation_y, params.period_y);
    // Later elements come from earlier inputs.
    while vertical.k < params.kernel_height && vertical.input >= 0 {
        var horizontal = left;
        while vertical.input < i32(params.height) && horizontal.k < params.kernel_width && horizontal.input > -4 {
            let inputs = vec4<i32>(horizontal.input) + vec4<i32>(0, 1, 2, 3);
            let inside = (inputs >= vec4<i32>(0)) & (inputs < vec4<i32>(i32(params.width)));
            var at = (image * params.channels + first_channel) * plane + u32(vertical.input) * params.width
                + vec4<u32>(clamp(inputs, vec4<i32>(0), vec4<i32>(i32(params.width) - 1)));
            var weights = first_channel * params.rows * kernel + rows
                + vertical.k * params.kernel_width + horizontal.k;
            for (var channel = 0u; channel < params.group_channels; channel++) {
                let values = select(vec4<f32>(0.0), vec4<f32>(x[at.x], x[at.y], x[at.z], x[at.w]), inside);
                sum0 += weight[weights.x] * values;
#ifdef ROWS_4
                sum1 += weight[weights.y] * values;
                sum2 += weight[weights.z] * values;
                sum3 += weight[weights.w] * values;
#endif
                at += plane;
                weights += params.rows * kernel;
            }
            horizontal.k += params.period_x;
            horizontal.input -= i32(params.gap_x);
        }
        vertical.k += params.period_y;
        vertical.input -= i32(params.gap_y);
    }
    store(image, group, row, y, column, sum0);
#ifdef ROWS_4
    store(image, group, row + 1u, y, column, sum1);
    store(image, group, row + 2u, y, column, sum2);
    store(image, group, row + 3u, y, column, sum3);
#endif
}
