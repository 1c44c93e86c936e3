// One invocation gates one element of x.
#import "soa"

// A gate is for `span` neighbours.
struct Params { elements: u32, columns: u32, span: u32 }

@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read> gate: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 64u + local;
    if i >= params.elements {
        return;
    }
#ifdef SOA
    let column = i % params.columns;
    let at = i - column + soa_index(column, params.columns / 32u);
#else
    let at = i;
#endif
    // exp of more than 88 overflows f32, and WGSL does not specify the result.
    x[at] /= 1.0 + exp(min(-gate[i / params.span], 80.0));
}
