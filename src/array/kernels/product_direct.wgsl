// Four rows and four columns an invocation, the columns 16 apart: what neighbours read lies side by side.
@compute @workgroup_size(16, 4)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let column = group.x * 64u + local.x;
    let row = group.y * 16u + local.y * 4u;
    if column >= columns() || row >= rows() {
        return;
    }
    let a_start = a_base(group.z);
    let b_start = b_base(group.z);
    // Rows and columns past the end repeat the last one; only the end leaves them out.
    let columns4 = min(vec4<u32>(column) + vec4<u32>(0u, 16u, 32u, 48u), vec4<u32>(columns() - 1u));
    let rows4 = min(vec4<u32>(row) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(rows() - 1u));
    var sums: array<vec4<f32>, 4>;
    for (var k = 0u; k < inner(); k++) {
        let right = vec4<f32>(b_at(b_start, k, columns4.x), b_at(b_start, k, columns4.y), b_at(b_start, k, columns4.z), b_at(b_start, k, columns4.w));
        sums[0] += a_at(a_start, rows4.x, k) * right;
        sums[1] += a_at(a_start, rows4.y, k) * right;
        sums[2] += a_at(a_start, rows4.z, k) * right;
        sums[3] += a_at(a_start, rows4.w, k) * right;
    }
    for (var r = 0u; r < 4u; r++) {
        for (var c = 0u; c < 4u; c++) {
            if row + r < rows() && column + 16u * c < columns() {
                let i = (group.z * rows() + row + r) * columns() + column + 16u * c;
                store(i, value_at(i, sums[r][c]));
            }
        }
    }
}
