#import "block"

@group(0) @binding(10) var<storage, read> weight_values: array<vec4<f32>>;

fn load_block(index: u32) -> Block {
    let at = index * 8u;
    return Block(
        weight_values[at], weight_values[at + 1u], weight_values[at + 2u], weight_values[at + 3u],
        weight_values[at + 4u], weight_values[at + 5u], weight_values[at + 6u], weight_values[at + 7u],
    );
}

// The product with activations whose sum is `x_sum`.
fn dot_block(index: u32, x: Block, x_sum: f32) -> f32 {
    return dot_blocks(load_block(index), x);
}
