// One invocation computes four columns.
#import "activate"

struct Params { words: u32, blocks: u32 }

@group(0) @binding(0) var<storage, read> gate_up: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> out: array<vec4<f32>>;
@group(0) @binding(20) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let at = (group.y * groups.x + group.x) * 64u + local;
    if at >= params.words {
        return;
    }
    // In the order of the output: token, word, block.
    let block = at % params.blocks;
    let token = at / params.blocks / 8u;
    let word = at / params.blocks % 8u;
    let source = (token * 2u * params.blocks + block) * 8u + word;
    let gate = gate_up[source];
    let gated = vec4<f32>(activate(gate.x), activate(gate.y), activate(gate.z), activate(gate.w));
    out[at] = gated * gate_up[source + params.blocks * 8u];
}
