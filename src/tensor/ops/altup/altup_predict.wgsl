// One invocation computes a column of one stream.
#import "tanh"

struct Params { elements: u32, columns: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> routed: array<f32>;
@group(0) @binding(2) var<storage, read> weights: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 64u + local;
    if i >= params.elements {
        return;
    }
    let column = i % params.columns;
    let stream = i / params.columns % STREAMS;
    let token = i / params.columns / STREAMS;
    var m: array<f32, STREAMS>;
    for (var k = 0u; k < STREAMS; k++) {
        m[k] = tanh_of(vec4<f32>(routed[token * STREAMS + k])).x;
    }
    var sum = x[i];
    for (var other = 0u; other < STREAMS; other++) {
        var c = 0.0;
        for (var k = 0u; k < STREAMS; k++) {
            c += weights[(stream * STREAMS + other) * STREAMS + k] * m[k];
        }
        sum += c * x[(token * STREAMS + other) * params.columns + column];
    }
    out[i] = sum;
}
