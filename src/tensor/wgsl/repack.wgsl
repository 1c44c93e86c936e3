// What every repacking kernel reads: a run of whole rows as they stand in the file, and where it goes.
struct Params {
    // Index of the run's first block of 32 weights in the matrix; even.
    first_block: u32,
    // Blocks of 32 weights in the run.
    blocks: u32,
    blocks_per_row: u32,
    columns: u32,
}

@group(0) @binding(0) var<storage, read> file: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;
