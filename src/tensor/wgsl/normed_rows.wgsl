// What the mat-vecs after an RMS norm share. The norm's weight is multiplied in on the way, and its scale, one number for the
// whole token, afterwards: W·(x ∘ g / rms) = (W·(x ∘ g)) / rms. So the norm needs no dispatch of its own.
//
// The kernel defines `params.columns`, `params.blocks` and `params.epsilon`.
#import "planar"
#import "dot_rows"
#import "subgroup_sum"

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> norm: array<vec4<f32>>;

#ifdef STAGED
// x ∘ g in planes, and what Σ x² is in each group of lanes: once for all rows of a workgroup, where these are many.
var<workgroup> staged: array<vec4<f32>, 8u * BLOCKS>;
var<workgroup> staged_squares: array<f32, WORKGROUP / LANES>;

fn sum_normed_rows(first_blocks: vec4<u32>, lane: u32, local: u32) -> vec4<f32> {
    var squares = 0.0;
    for (var i = local; i < 8u * BLOCKS; i += WORKGROUP) {
        let v = x[i];
        squares += dot(v, v);
        staged[i] = v * norm[i];
    }
    let lanes_square = sum_over_lanes(vec4<f32>(squares, 0.0, 0.0, 0.0), local).x;
    if local % LANES == 0u {
        staged_squares[local / LANES] = lanes_square;
    }
    workgroupBarrier();
    var square = 0.0;
    for (var i = 0u; i < WORKGROUP / LANES; i++) {
        square += staged_squares[i];
    }
    let n = BLOCKS;
    var products = vec4<f32>(0.0);
    for (var b = lane; b < n; b += TEAM) {
        let v = Block(
            staged[b], staged[n + b], staged[2u * n + b], staged[3u * n + b],
            staged[4u * n + b], staged[5u * n + b], staged[6u * n + b], staged[7u * n + b],
        );
        products += dot_rows(first_blocks, b, v);
    }
    return sum_over_team(products, local, 0u) * inverseSqrt(square / f32(params.columns) + params.epsilon);
}
#else
fn sum_normed_rows(first_blocks: vec4<u32>, lane: u32, local: u32) -> vec4<f32> {
    let n = params.blocks;
    var products = vec4<f32>(0.0);
    var squares = 0.0;
    for (var b = lane; b < n; b += TEAM) {
        let v = Block(x[b], x[n + b], x[2u * n + b], x[3u * n + b], x[4u * n + b], x[5u * n + b], x[6u * n + b], x[7u * n + b]);
        squares += dot_blocks(v, v);
        let g = Block(
            v.v0 * norm[b], v.v1 * norm[n + b], v.v2 * norm[2u * n + b], v.v3 * norm[3u * n + b],
            v.v4 * norm[4u * n + b], v.v5 * norm[5u * n + b], v.v6 * norm[6u * n + b], v.v7 * norm[7u * n + b],
        );
        products += dot_rows(first_blocks, b, g);
    }
#ifdef FOUR_ROWS
    let square = sum_over_team(vec4<f32>(squares, 0.0, 0.0, 0.0), local, 0u).x;
    products = sum_over_team(products, local, 1u);
#else
    // One of the four is free.
    products.w = squares;
    products = sum_over_team(products, local, 0u);
    let square = products.w;
#endif
    return products * inverseSqrt(square / f32(params.columns) + params.epsilon);
}
#endif
