// What mat-vecs after a norm share. The default is an RMS norm: x is multiplied by its weight before the product, and the product by its
// scale, one number for the token, after it: W·(x ∘ g / rms) = (W·(x ∘ g)) / rms. So the norm needs no dispatch of its own. With
// LAYER_NORM, mean and variance are computed first, since a difference of sums would lose digits. With UNNORMED there is no norm.
//
// With LOW_RANK an adapter adds to the rows. After an RMS norm its h is A·(x ∘ g), since its product is divided with the others.
//
// The kernel defines `params.columns`, `params.blocks` and `params.epsilon`.
#import "soa"
#import "dot_rows"
#import "subgroup_sum"
#ifdef LOW_RANK
#import "low_rank"
#endif

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> norm: array<vec4<f32>>;

fn sum_of_four(v: vec4<f32>) -> f32 {
    return (v.x + v.y) + (v.z + v.w);
}

#ifdef LAYER_NORM
// Four columns of the normed token; `norm` holds the weight and then the bias.
fn layer_normed(i: u32, mean: f32, scale: f32) -> vec4<f32> {
    return (x[i] - mean) * scale * norm[i] + norm[8u * params.blocks + i];
}
#endif

#ifdef STAGED
// The token in SoA, if it is normed before the products: once for all rows of a workgroup with many rows. And sums of groups of
// lanes.
var<workgroup> staged: array<vec4<f32>, 8u * BLOCKS>;
var<workgroup> staged_sums: array<f32, 2u * WORKGROUP / LANES>;

// The sum over all invocations. Calls without a barrier between them need different slots, 0 or 1.
fn sum_over_workgroup(value: f32, local: u32, slot: u32) -> f32 {
    let lanes_sum = sum_over_lanes(vec4<f32>(value, 0.0, 0.0, 0.0), local).x;
    let first = slot * (WORKGROUP / LANES);
    if local % LANES == 0u {
        staged_sums[first + local / LANES] = lanes_sum;
    }
    workgroupBarrier();
    var sum = 0.0;
    for (var i = 0u; i < WORKGROUP / LANES; i++) {
        sum += staged_sums[first + i];
    }
    return sum;
}

fn sum_normed_rows(first_blocks: vec4<u32>, lane: u32, local: u32) -> vec4<f32> {
#ifdef LAYER_NORM
    var part = vec4<f32>(0.0);
    for (var i = local; i < 8u * BLOCKS; i += WORKGROUP) {
        part += x[i];
    }
    let mean = sum_over_workgroup(sum_of_four(part), local, 0u) / f32(params.columns);
    part = vec4<f32>(0.0);
    for (var i = local; i < 8u * BLOCKS; i += WORKGROUP) {
        let difference = x[i] - mean;
        part += difference * difference;
    }
    let square = sum_over_workgroup(sum_of_four(part), local, 1u);
    let scale = inverseSqrt(square / f32(params.columns) + params.epsilon);
    for (var i = local; i < 8u * BLOCKS; i += WORKGROUP) {
        staged[i] = layer_normed(i, mean, scale);
    }
    workgroupBarrier();
#else
#ifdef UNNORMED
    for (var i = local; i < 8u * BLOCKS; i += WORKGROUP) {
        staged[i] = x[i];
    }
    workgroupBarrier();
#else
    var squares = 0.0;
    for (var i = local; i < 8u * BLOCKS; i += WORKGROUP) {
        let v = x[i];
        squares += dot(v, v);
        staged[i] = v * norm[i];
    }
    let square = sum_over_workgroup(squares, local, 0u);
#endif
#endif
    let n = BLOCKS;
    var products = vec4<f32>(0.0);
    for (var b = lane; b < n; b += TEAM) {
        let v = Block(
            staged[b], staged[n + b], staged[2u * n + b], staged[3u * n + b],
            staged[4u * n + b], staged[5u * n + b], staged[6u * n + b], staged[7u * n + b],
        );
        products += dot_rows(first_blocks, b, v);
    }
#ifdef LOW_RANK
    products += low_rank_rows(first_blocks / params.blocks, lane);
#endif
    products = sum_over_team(products, local, 0u);
#ifdef LAYER_NORM
    return products;
#else
#ifdef UNNORMED
    return products;
#else
    return products * inverseSqrt(square / f32(params.columns) + params.epsilon);
#endif
#endif
}
#else
#ifdef LAYER_NORM
fn sum_normed_rows(first_blocks: vec4<u32>, lane: u32, local: u32) -> vec4<f32> {
    let n = params.blocks;
    var part = vec4<f32>(0.0);
    for (var b = lane; b < n; b += TEAM) {
        for (var i = b; i < 8u * n; i += n) {
            part += x[i];
        }
    }
    let mean = sum_of_four(sum_over_team(part, local, 0u)) / f32(params.columns);
    part = vec4<f32>(0.0);
    for (var b = lane; b < n; b += TEAM) {
        for (var i = b; i < 8u * n; i += n) {
            let difference = x[i] - mean;
            part += difference * difference;
        }
    }
    let square = sum_of_four(sum_over_team(part, local, 1u));
    let scale = inverseSqrt(square / f32(params.columns) + params.epsilon);
    var products = vec4<f32>(0.0);
    for (var b = lane; b < n; b += TEAM) {
        let v = Block(
            layer_normed(b, mean, scale), layer_normed(n + b, mean, scale),
            layer_normed(2u * n + b, mean, scale), layer_normed(3u * n + b, mean, scale),
            layer_normed(4u * n + b, mean, scale), layer_normed(5u * n + b, mean, scale),
            layer_normed(6u * n + b, mean, scale), layer_normed(7u * n + b, mean, scale),
        );
        products += dot_rows(first_blocks, b, v);
    }
#ifdef LOW_RANK
    products += low_rank_rows(first_blocks / params.blocks, lane);
#endif
    return sum_over_team(products, local, 0u);
}
#else
#ifdef UNNORMED
fn sum_normed_rows(first_blocks: vec4<u32>, lane: u32, local: u32) -> vec4<f32> {
    let n = params.blocks;
    var products = vec4<f32>(0.0);
    for (var b = lane; b < n; b += TEAM) {
        let v = Block(x[b], x[n + b], x[2u * n + b], x[3u * n + b], x[4u * n + b], x[5u * n + b], x[6u * n + b], x[7u * n + b]);
        products += dot_rows(first_blocks, b, v);
    }
#ifdef LOW_RANK
    products += low_rank_rows(first_blocks / params.blocks, lane);
#endif
    return sum_over_team(products, local, 0u);
}
#else
fn sum_normed_rows(first_blocks: vec4<u32>, lane: u32, local: u32) -> vec4<f32> {
    let n = params.blocks;
    var products = vec4<f32>(0.0);
    var squares = 0.0;
    for (var b = lane; b < n; b += TEAM) {
#ifdef ROLLED
        var words: array<vec4<f32>, 8>;
        for (var i = 0u; i < 8u; i++) {
            let v = x[i * n + b];
            squares += dot(v, v);
            words[i] = v * norm[i * n + b];
        }
        let g = Block(words[0], words[1], words[2], words[3], words[4], words[5], words[6], words[7]);
#else
        let v = Block(x[b], x[n + b], x[2u * n + b], x[3u * n + b], x[4u * n + b], x[5u * n + b], x[6u * n + b], x[7u * n + b]);
        squares += dot_blocks(v, v);
        let g = Block(
            v.v0 * norm[b], v.v1 * norm[n + b], v.v2 * norm[2u * n + b], v.v3 * norm[3u * n + b],
            v.v4 * norm[4u * n + b], v.v5 * norm[5u * n + b], v.v6 * norm[6u * n + b], v.v7 * norm[7u * n + b],
        );
#endif
        products += dot_rows(first_blocks, b, g);
    }
#ifdef LOW_RANK
    products += low_rank_rows(first_blocks / params.blocks, lane);
#endif
#ifdef FOUR_ROWS
    let square = sum_over_team(vec4<f32>(squares, 0.0, 0.0, 0.0), local, 0u).x;
    products = sum_over_team(products, local, 1u);
#else
    // One of the four components is free.
    products.w = squares;
    products = sum_over_team(products, local, 0u);
    let square = products.w;
#endif
    return products * inverseSqrt(square / f32(params.columns) + params.epsilon);
}
#endif
#endif
#endif
