// One invocation per element of the output. Neighbours read neighbours.
struct Params { elements: u32, columns: u32, rows: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> spans: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let id = (group.y * groups.x + group.x) * 64u + local;
    if id >= params.elements {
        return;
    }
    let n = id / params.columns;
    let column = id % params.columns;
    let begin = spans[2u * n];
    let end = min(spans[2u * n + 1u], params.rows);
    var largest = x[begin * params.columns + column];
    for (var row = begin + 1u; row < end; row++) {
        largest = max(largest, x[row * params.columns + column]);
    }
    out[id] = largest;
}
