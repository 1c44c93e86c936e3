// An invocation per four elements, a workgroup's width apart.
struct Params { elements: u32, n: u32, inner: u32, block: u32, blocks: u32 }

#ifdef INTEGERS
alias Number = u32;
#else
alias Number = f32;
#endif

@group(0) @binding(0) var<storage, read_write> x: array<Number>;
@group(0) @binding(1) var<storage, read> sums: array<Number>;
@group(0) @binding(20) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let first = (group.y * groups.x + group.x) * 256u + local;
    for (var at = first; at < min(first + 256u, params.elements); at += 64u) {
        let row = at / params.inner;
        let block = row % params.n / params.block;
        if block > 0u {
            x[at] += sums[(row / params.n * params.blocks + block - 1u) * params.inner + at % params.inner];
        }
    }
}
