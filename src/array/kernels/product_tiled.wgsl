// A square of 8 · SIDE rows and columns a workgroup of SIDE by SIDE invocations: each computes 8 by 8, of which four lie together. SIDE steps
// along the inner dimension lie in workgroup memory, four rows or columns a vector, and the next ones are on their way in registers meanwhile. Sums have
// names: an array of them would not stay in registers.
const TILE: u32 = 8u * SIDE;
const QUADS: u32 = 2u * SIDE;

var<workgroup> a_tile: array<vec4<f32>, SIDE * QUADS>;
var<workgroup> b_tile: array<vec4<f32>, SIDE * QUADS>;

// Rows and columns past the end repeat the last one, and only the end leaves them out; past the inner dimension everything is 0.
fn a_quad(base: u32, row: u32, k: u32) -> vec4<f32> {
    let r = min(vec4<u32>(row, row + 1u, row + 2u, row + 3u), vec4<u32>(rows() - 1u));
    let at = min(k, inner() - 1u);
    let quad = vec4<f32>(a_at(base, r.x, at), a_at(base, r.y, at), a_at(base, r.z, at), a_at(base, r.w, at));
    return select(vec4<f32>(0.0), quad, k < inner());
}

fn b_quad(base: u32, k: u32, column: u32) -> vec4<f32> {
    let c = min(vec4<u32>(column, column + 1u, column + 2u, column + 3u), vec4<u32>(columns() - 1u));
    let at = min(k, inner() - 1u);
    let quad = vec4<f32>(b_at(base, at, c.x), b_at(base, at, c.y), b_at(base, at, c.z), b_at(base, at, c.w));
    return select(vec4<f32>(0.0), quad, k < inner());
}

fn store_quad(batch: u32, row: u32, column: u32, sums: vec4<f32>) {
    let i = (batch * rows() + row) * columns() + column;
    if column < columns() {
        store(i, value_at(i, sums.x));
    }
    if column + 1u < columns() {
        store(i + 1u, value_at(i + 1u, sums.y));
    }
    if column + 2u < columns() {
        store(i + 2u, value_at(i + 2u, sums.z));
    }
    if column + 3u < columns() {
        store(i + 3u, value_at(i + 3u, sums.w));
    }
}

fn store_row(batch: u32, row: u32, column: u32, left: vec4<f32>, right: vec4<f32>) {
    if row < rows() {
        store_quad(batch, row, column, left);
        store_quad(batch, row, column + 4u * SIDE, right);
    }
}

@compute @workgroup_size(SIDE, SIDE)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>, @builtin(local_invocation_index) index: u32) {
    // Neighbours load along the inner dimension of a, and along the columns of b; each loads twice, half a tile apart.
    let a_row = group.y * TILE + index / SIDE * 4u;
    let a_inner = index % SIDE;
    let a_place = a_inner * QUADS + index / SIDE;
    let b_column = group.x * TILE + index % QUADS * 4u;
    let b_inner = index / QUADS;
    let a_start = a_base(group.z);
    let b_start = b_base(group.z);
    var next_a0 = a_quad(a_start, a_row, a_inner);
    var next_a1 = a_quad(a_start, a_row + 4u * SIDE, a_inner);
    var next_b0 = b_quad(b_start, b_inner, b_column);
    var next_b1 = b_quad(b_start, b_inner + SIDE / 2u, b_column);
    var left0 = vec4<f32>(0.0);
    var right0 = vec4<f32>(0.0);
    var left1 = vec4<f32>(0.0);
    var right1 = vec4<f32>(0.0);
    var left2 = vec4<f32>(0.0);
    var right2 = vec4<f32>(0.0);
    var left3 = vec4<f32>(0.0);
    var right3 = vec4<f32>(0.0);
    var left4 = vec4<f32>(0.0);
    var right4 = vec4<f32>(0.0);
    var left5 = vec4<f32>(0.0);
    var right5 = vec4<f32>(0.0);
    var left6 = vec4<f32>(0.0);
    var right6 = vec4<f32>(0.0);
    var left7 = vec4<f32>(0.0);
    var right7 = vec4<f32>(0.0);
    for (var first = 0u; first < inner(); first += SIDE) {
        a_tile[a_place] = next_a0;
        a_tile[a_place + SIDE] = next_a1;
        b_tile[index] = next_b0;
        b_tile[index + SIDE * SIDE] = next_b1;
        workgroupBarrier();
        let next = first + SIDE;
        next_a0 = a_quad(a_start, a_row, next + a_inner);
        next_a1 = a_quad(a_start, a_row + 4u * SIDE, next + a_inner);
        next_b0 = b_quad(b_start, next + b_inner, b_column);
        next_b1 = b_quad(b_start, next + b_inner + SIDE / 2u, b_column);
        for (var k = 0u; k < SIDE; k++) {
            let at = k * QUADS;
            let b0 = b_tile[at + local.x];
            let b1 = b_tile[at + SIDE + local.x];
            let a0 = a_tile[at + local.y];
            let a1 = a_tile[at + SIDE + local.y];
            left0 = fma(vec4<f32>(a0.x), b0, left0);
            right0 = fma(vec4<f32>(a0.x), b1, right0);
            left1 = fma(vec4<f32>(a0.y), b0, left1);
            right1 = fma(vec4<f32>(a0.y), b1, right1);
            left2 = fma(vec4<f32>(a0.z), b0, left2);
            right2 = fma(vec4<f32>(a0.z), b1, right2);
            left3 = fma(vec4<f32>(a0.w), b0, left3);
            right3 = fma(vec4<f32>(a0.w), b1, right3);
            left4 = fma(vec4<f32>(a1.x), b0, left4);
            right4 = fma(vec4<f32>(a1.x), b1, right4);
            left5 = fma(vec4<f32>(a1.y), b0, left5);
            right5 = fma(vec4<f32>(a1.y), b1, right5);
            left6 = fma(vec4<f32>(a1.z), b0, left6);
            right6 = fma(vec4<f32>(a1.z), b1, right6);
            left7 = fma(vec4<f32>(a1.w), b0, left7);
            right7 = fma(vec4<f32>(a1.w), b1, right7);
        }
        workgroupBarrier();
    }
    let row = group.y * TILE + local.y * 4u;
    let column = group.x * TILE + local.x * 4u;
    store_row(group.z, row, column, left0, right0);
    store_row(group.z, row + 1u, column, left1, right1);
    store_row(group.z, row + 2u, column, left2, right2);
    store_row(group.z, row + 3u, column, left3, right3);
    store_row(group.z, row + 4u * SIDE, column, left4, right4);
    store_row(group.z, row + 4u * SIDE + 1u, column, left5, right5);
    store_row(group.z, row + 4u * SIDE + 2u, column, left6, right6);
    store_row(group.z, row + 4u * SIDE + 3u, column, left7, right7);
}
