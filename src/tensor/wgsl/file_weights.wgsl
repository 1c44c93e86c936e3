// Numbers of a run of rows of a file, which are quantised on their way to the GPU.
#import "repack"
#import "exact_float"
#import "file_value"

// Weight `i` of a block of the run.
fn weight_of(block: u32, i: u32) -> f32 {
    let row = block / params.blocks_per_row;
    let column = (block % params.blocks_per_row) * 32u + i;
    return file_value(row * params.columns + column);
}

// A zero that is unknown to the compiler keeps it from fusing a product with a sum.
fn unfused(product: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(product) + (params.columns >> 31u));
}
