struct Params { elements: u32, vocabulary: u32, words: u32 }

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> allowed: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 64u + local;
    if i >= params.elements {
        return;
    }
    let row = i / params.vocabulary;
    let token = i - row * params.vocabulary;
    let logit = logits[i];
    let bit = (allowed[row * params.words + token / 32u] >> (token % 32u)) & 1u;
    // By its bits: compilers may assume that there is no NaN.
    let is_nan = (bitcast<u32>(logit) & 0x7fffffffu) > 0x7f800000u;
    out[i] = select(-3.4028234663852886e38, logit, bit == 1u || is_nan);
}
