// Each invocation computes four rows and four columns, the columns 16 apart: what neighbours read lies side by side.
struct Params { m: u32, k: u32, n: u32 }

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

fn store(row: u32, column: u32, value: vec4<f32>) {
    if row < params.m {
        for (var i = 0u; i < 4u; i++) {
            if column + 16u * i < params.n {
                out[row * params.n + column + 16u * i] = value[i];
            }
        }
    }
}

@compute @workgroup_size(16, 4)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let column = group.x * 64u + local.x;
    let row = group.y * 16u + local.y * 4u;
    if column >= params.n || row >= params.m {
        return;
    }
    // Rows and columns past the end repeat the last one; only `store` leaves them out.
    let columns = min(vec4<u32>(column) + vec4<u32>(0u, 16u, 32u, 48u), vec4<u32>(params.n - 1u));
    let starts = min(vec4<u32>(row) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.m - 1u)) * params.k;

    var sum0 = vec4<f32>(0.0);
    var sum1 = vec4<f32>(0.0);
    var sum2 = vec4<f32>(0.0);
    var sum3 = vec4<f32>(0.0);
    for (var i = 0u; i < params.k; i++) {
        let at = columns + i * params.n;
        let right = vec4<f32>(b[at.x], b[at.y], b[at.z], b[at.w]);
        sum0 += a[starts.x + i] * right;
        sum1 += a[starts.y + i] * right;
        sum2 += a[starts.z + i] * right;
        sum3 += a[starts.w + i] * right;
    }
    store(row, column, sum0);
    store(row + 1u, column, sum1);
    store(row + 2u, column, sum2);
    store(row + 3u, column, sum3);
}
