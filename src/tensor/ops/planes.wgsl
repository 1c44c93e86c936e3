// One invocation brings four columns of a token to their plane.
struct Params { words: u32, blocks: u32 }

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> out: array<vec4<f32>>;
@group(0) @binding(20) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let at = (group.y * groups.x + group.x) * 64u + local;
    if at >= params.words {
        return;
    }
    // Eight words a block, in the order of the output: token, word, block.
    let block = at % params.blocks;
    let token_and_word = at / params.blocks;
    let token = token_and_word / 8u;
    let word = token_and_word % 8u;
    out[at] = x[(token * params.blocks + block) * 8u + word];
}
