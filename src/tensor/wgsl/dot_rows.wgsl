// Products of a block of activations with the same block of ROWS rows of a weight. Each result is one component. With ROLLED, on software
// adapters, in a loop: they take longer to compile what is written out than to run it.
#import "block"

#ifdef ROLLED
#ifdef FOUR_ROWS
const DOT_ROWS: u32 = 4u;
#else
#ifdef TWO_ROWS
const DOT_ROWS: u32 = 2u;
#else
const DOT_ROWS: u32 = 1u;
#endif
#endif

fn dot_rows(first_blocks: vec4<u32>, block: u32, x: Block) -> vec4<f32> {
    let x_sum = sum_block(x);
    var products = vec4<f32>(0.0);
    for (var row = 0u; row < DOT_ROWS; row++) {
        products[row] = dot_block(first_blocks[row] + block, x, x_sum);
    }
    return products;
}
#else
fn dot_rows(first_blocks: vec4<u32>, block: u32, x: Block) -> vec4<f32> {
    let x_sum = sum_block(x);
    var products = vec4<f32>(dot_block(first_blocks.x + block, x, x_sum), 0.0, 0.0, 0.0);
#ifdef TWO_ROWS
    products.y = dot_block(first_blocks.y + block, x, x_sum);
#endif
#ifdef FOUR_ROWS
    products.z = dot_block(first_blocks.z + block, x, x_sum);
    products.w = dot_block(first_blocks.w + block, x, x_sum);
#endif
    return products;
}
#endif
