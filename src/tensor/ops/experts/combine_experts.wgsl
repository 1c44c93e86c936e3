struct Params { elements: u32, columns: u32, used: u32 }

@group(0) @binding(0) var<storage, read> y: array<f32>;
@group(0) @binding(1) var<storage, read> weights: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 64u + local;
    if i >= params.elements {
        return;
    }
    let first = i / params.columns * params.used;
    let column = i % params.columns;
    var sum = 0.0;
    for (var item = first; item < first + params.used; item++) {
        sum += weights[item] * y[item * params.columns + column];
    }
#ifdef SOA
    let blocks = params.columns / 32u;
    let at = i - column + (column % 32u / 4u * blocks + column / 32u) * 4u + column % 4u;
#else
    let at = i;
#endif
#ifdef ADDS
    out[at] += sum;
#else
    out[at] = sum;
#endif
}
