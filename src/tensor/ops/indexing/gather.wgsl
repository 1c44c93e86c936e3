// An invocation per element of the output.
struct Params { elements: u32, n: u32, inner: u32, m: u32, missing: u32 }

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> indices: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "index_of"

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let at = (group.y * groups.x + group.x) * 64u + local;
    if at >= params.elements {
        return;
    }
    let index = index_of(indices[at], params.n);
    var word = params.missing;
    if index < params.n {
        word = x[(at / params.inner / params.m * params.n + index) * params.inner + at % params.inner];
    }
    out[at] = word;
}
