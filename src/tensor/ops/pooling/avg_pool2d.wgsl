struct Params {
    elements: u32, height: u32, width: u32, out_height: u32, out_width: u32,
    kernel_height: u32, kernel_width: u32, stride_y: u32, stride_x: u32,
    padding_y: u32, padding_x: u32, dilation_y: u32, dilation_x: u32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

// A window's rows or columns: the first, the one after the last, and the number that the mean counts.
struct Range { begin: u32, end: u32, count: u32 }

// `start` counts from the edge of the padding.
fn range_of(start: u32, kernel: u32, padding: u32, size: u32) -> Range {
    let begin = max(start, padding) - padding;
    let end = min(max(start + kernel, padding) - padding, size);
#ifdef COUNT_PADDING
    return Range(begin, end, min(start + kernel, size + 2u * padding) - start);
#else
    return Range(begin, end, end - begin);
#endif
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 64u + local;
    if i >= params.elements {
        return;
    }
    let start = i / (params.out_height * params.out_width) * params.height * params.width;
    let rows = range_of(
        i / params.out_width % params.out_height * params.stride_y, params.kernel_height, params.padding_y, params.height,
    );
    let columns = range_of(i % params.out_width * params.stride_x, params.kernel_width, params.padding_x, params.width);
    var sum = 0.0;
    for (var y = rows.begin; y < rows.end; y++) {
        // Each row by itself, since sums of few numbers lose fewer digits.
        var line = 0.0;
        for (var column = columns.begin; column < columns.end; column++) {
            line += x[start + y * params.width + column];
        }
        sum += line;
    }
    out[i] = sum / (f32(rows.count) * f32(columns.count));
}
