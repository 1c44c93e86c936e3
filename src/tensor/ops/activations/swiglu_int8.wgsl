// One invocation computes one block of 32 columns.
#import "activate"
#import "quantize_block"

struct Params { blocks: u32, blocks_per_row: u32 }

@group(0) @binding(0) var<storage, read> gate_up: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> quants: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> scales: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

fn product(gate_at: u32) -> vec4<f32> {
    let gate = gate_up[gate_at];
    return vec4<f32>(activate(gate.x), activate(gate.y), activate(gate.z), activate(gate.w)) * gate_up[gate_at + params.blocks_per_row * 8u];
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let block = (group.y * groups.x + group.x) * 64u + local;
    if block >= params.blocks {
        return;
    }
    let at = (block / params.blocks_per_row * 2u * params.blocks_per_row + block % params.blocks_per_row) * 8u;
    let quantized = quantize_block(Block(
        product(at), product(at + 1u), product(at + 2u), product(at + 3u),
        product(at + 4u), product(at + 5u), product(at + 6u), product(at + 7u),
    ));
    quants[block * 2u] = quantized.low;
    quants[block * 2u + 1u] = quantized.high;
    scales[block] = quantized.scale;
}
