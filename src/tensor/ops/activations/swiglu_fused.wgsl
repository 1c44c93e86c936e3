// One invocation computes four columns, or one if rows are not multiples of four.
#import "activate"

struct Params {
    // The outputs in all, and in a row.
    numbers: u32, numbers_per_row: u32,
}

#ifdef FOUR
alias Number = vec4<f32>;
#else
alias Number = f32;
#endif

@group(0) @binding(0) var<storage, read> gate_up: array<Number>;
@group(0) @binding(1) var<storage, read_write> out: array<Number>;
@group(0) @binding(20) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 64u + local;
    if i >= params.numbers {
        return;
    }
    let at = i / params.numbers_per_row * 2u * params.numbers_per_row + i % params.numbers_per_row;
    let gate = gate_up[at];
#ifdef FOUR
    let gated = vec4<f32>(activate(gate.x), activate(gate.y), activate(gate.z), activate(gate.w));
#else
    let gated = activate(gate);
#endif
    out[i] = gated * gate_up[at + params.numbers_per_row];
}
