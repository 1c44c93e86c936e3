// What kernels share that quantise rows of a file on their way to the GPU: where a block of 32 weights stands.
#import "repack"
#import "exact_float"
#import "file_value"

// Weight `i` of a block of the run.
fn weight_of(block: u32, i: u32) -> f32 {
    let row = block / params.blocks_per_row;
    let column = (block % params.blocks_per_row) * 32u + i;
    return file_value(row * params.columns + column);
}
