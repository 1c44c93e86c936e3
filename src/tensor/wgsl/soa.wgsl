// One token's activations in SoA: array i holds columns 4i to 4i + 3 of every block of 32, so that neighbouring lanes, which
// take neighbouring blocks, read side by side. Columns are a multiple of 32.
#import "block"

// The index of a column in SoA, for `blocks` blocks.
fn soa_index(column: u32, blocks: u32) -> u32 {
    return ((column % 32u) / 4u * blocks + column / 32u) * 4u + column % 4u;
}
