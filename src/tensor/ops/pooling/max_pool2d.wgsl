struct Params {
    elements: u32, lowest: u32, height: u32, width: u32, out_height: u32, out_width: u32,
    kernel_height: u32, kernel_width: u32, stride_y: u32, stride_x: u32,
    padding_y: u32, padding_x: u32, dilation_y: u32, dilation_x: u32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> values: array<f32>;
@group(0) @binding(2) var<storage, read_write> places: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

// By its bits: compilers may take it for granted that no number is NaN.
fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 64u + local;
    if i >= params.elements {
        return;
    }
    let start = i / (params.out_height * params.out_width) * params.height * params.width;
    // In the padding before the input they are negative, which as u32 is past its end.
    let top = i / params.out_width % params.out_height * params.stride_y - params.padding_y;
    let left = i % params.out_width * params.stride_x - params.padding_x;
    // Bits, since what holds a NaN may otherwise be changed on its way.
    var largest = params.lowest;
    var place = 0u;
    var is_first = true;
    for (var ky = 0u; ky < params.kernel_height; ky++) {
        let y = top + ky * params.dilation_y;
        if y >= params.height {
            continue;
        }
        for (var kx = 0u; kx < params.kernel_width; kx++) {
            let column = left + kx * params.dilation_x;
            if column >= params.width {
                continue;
            }
            let at = y * params.width + column;
            let value = x[start + at];
            let best = bitcast<f32>(largest);
            if is_first || is_nan(value) || (value > best && !is_nan(best)) {
                largest = bitcast<u32>(value);
                place = at;
                is_first = false;
            }
        }
    }
    values[i] = bitcast<f32>(largest);
    places[i] = place;
}
