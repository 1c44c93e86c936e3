#import "block"

// A vector of four 32-bit words holds the nibbles of a block, in the order of Q4_0.
@group(0) @binding(10) var<storage, read> weight_quants: array<vec4<u32>>;
// The 16 numbers, then a scale for each group.
@group(0) @binding(11) var<storage, read> weight_scales: array<f32>;

// The numbers of every other nibble, from a bit on.
fn four_numbers(word: u32, first: u32) -> vec4<f32> {
    let places = (vec4<u32>(word) >> (vec4<u32>(0u, 8u, 16u, 24u) + vec4<u32>(first))) & vec4<u32>(15u);
    return vec4<f32>(
        weight_scales[places.x], weight_scales[places.y], weight_scales[places.z], weight_scales[places.w],
    );
}

fn unscaled(index: u32) -> Block {
    let q = weight_quants[index];
    return Block(
        four_numbers(q.x, 0u), four_numbers(q.y, 0u), four_numbers(q.z, 0u), four_numbers(q.w, 0u),
        four_numbers(q.x, 4u), four_numbers(q.y, 4u), four_numbers(q.z, 4u), four_numbers(q.w, 4u),
    );
}

fn load_block(index: u32) -> Block {
    let b = unscaled(index);
    let d = weight_scales[16u + index / WEIGHT_GROUP];
    return Block(b.v0 * d, b.v1 * d, b.v2 * d, b.v3 * d, b.v4 * d, b.v5 * d, b.v6 * d, b.v7 * d);
}

// The product with activations whose sum is `x_sum`: the scale once for the block.
fn dot_block(index: u32, x: Block, x_sum: f32) -> f32 {
    return weight_scales[16u + index / WEIGHT_GROUP] * dot_blocks(unscaled(index), x);
}
