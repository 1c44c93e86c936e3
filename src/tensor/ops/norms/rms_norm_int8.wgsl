// One workgroup, a team of LANES invocations, per row; each takes every LANES-th block of 32 columns.
#import "subgroup_sum"
#import "quantize_block"

struct Params { rows: u32, blocks: u32, epsilon: f32 }

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> quants: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> scales: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = group.y * groups.x + group.x;
    // The grid can be a little larger than the rows; such a team repeats the last row and writes nothing.
    let start = min(row, params.rows - 1u) * params.blocks;
    var squares = vec4<f32>(0.0);
    for (var block = local; block < params.blocks; block += LANES) {
        for (var i = 0u; i < 8u; i++) {
            let value = x[(start + block) * 8u + i];
            squares += value * value;
        }
    }
    let total = sum_over_lanes(squares, local);
    let mean = (total.x + total.y + total.z + total.w) / f32(params.blocks * 32u);
    let scale = inverseSqrt(mean + params.epsilon);
    if row < params.rows {
        for (var block = local; block < params.blocks; block += LANES) {
            let at = (start + block) * 8u;
            let w = block * 8u;
            let quantized = quantize_block(Block(
                x[at] * scale * weight[w], x[at + 1u] * scale * weight[w + 1u],
                x[at + 2u] * scale * weight[w + 2u], x[at + 3u] * scale * weight[w + 3u],
                x[at + 4u] * scale * weight[w + 4u], x[at + 5u] * scale * weight[w + 5u],
                x[at + 6u] * scale * weight[w + 6u], x[at + 7u] * scale * weight[w + 7u],
            ));
            quants[(start + block) * 2u] = quantized.low;
            quants[(start + block) * 2u + 1u] = quantized.high;
            scales[start + block] = quantized.scale;
        }
    }
}
