// An invocation per element of the source.
struct Params { elements: u32, n: u32, inner: u32, m: u32 }

@group(0) @binding(0) var<storage, read_write> x: array<atomic<u32>>;
@group(0) @binding(1) var<storage, read> indices: array<u32>;
@group(0) @binding(2) var<storage, read> source: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "index_of"

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let at = (group.y * groups.x + group.x) * 64u + local;
    if at >= params.elements {
        return;
    }
    let index = index_of(indices[at], params.n);
    if index >= params.n {
        return;
    }
    let place = (at / params.inner / params.m * params.n + index) * params.inner + at % params.inner;
#ifdef INTEGERS
    atomicAdd(&x[place], source[at]);
#else
    // WGSL has no atomic addition of floats: the sum is stored if nobody has changed the element meanwhile.
    let number = bitcast<f32>(source[at]);
    var before = atomicLoad(&x[place]);
    loop {
        let sum = bitcast<u32>(bitcast<f32>(before) + number);
        let exchange = atomicCompareExchangeWeak(&x[place], before, sum);
        if exchange.exchanged {
            break;
        }
        before = exchange.old_value;
    }
#endif
}
