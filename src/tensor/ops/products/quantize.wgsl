// One invocation turns one block of 32 numbers into int8.
#import "int8_block"
#import "quantize_block"

struct Params { blocks: u32 }

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> quants: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> scales: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let block = (group.y * groups.x + group.x) * 64u + local;
    if block >= params.blocks {
        return;
    }
    let at = block * 8u;
    let quantized = quantize_block(Block(
        x[at], x[at + 1u], x[at + 2u], x[at + 3u], x[at + 4u], x[at + 5u], x[at + 6u], x[at + 7u],
    ));
    quants[block * 2u] = quantized.low;
    quants[block * 2u + 1u] = quantized.high;
    scales[block] = quantized.scale;
}
