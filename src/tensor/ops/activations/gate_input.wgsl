#import "activate"

struct Params { elements: u32, columns: u32, all: u32, first: u32 }

@group(0) @binding(0) var<storage, read> gate: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 64u + local;
    if i >= params.elements {
        return;
    }
    let row = i / params.columns;
    let column = i % params.columns;
#ifdef SOA
    let blocks = params.columns / 32u;
    let at = i - column + (column % 32u / 4u * blocks + column / 32u) * 4u + column % 4u;
#else
    let at = i;
#endif
    out[at] = activate(gate[i]) * x[row * params.all + params.first + column];
}
