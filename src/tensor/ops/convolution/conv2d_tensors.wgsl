// What the kernels of conv2d read and write. Rows are the output channels of a group.
struct Params {
    images: u32, channels: u32, height: u32, width: u32,
    rows: u32, group_channels: u32, groups: u32, out_height: u32, out_width: u32,
    kernel_height: u32, kernel_width: u32, stride_y: u32, stride_x: u32,
    padding_y: u32, padding_x: u32, dilation_y: u32, dilation_x: u32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
#ifdef BIAS
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;
#else
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
#endif
@group(0) @binding(20) var<uniform> params: Params;

fn store(group: u32, row: u32, position: u32, value: f32) {
    let plane = params.out_height * params.out_width;
    if row < params.rows && position < params.images * plane {
        let channel = group * params.rows + row;
        let at = (position / plane * params.groups * params.rows + channel) * plane + position % plane;
#ifdef BIAS
        out[at] = value + bias[channel];
#else
        out[at] = value;
#endif
    }
}
