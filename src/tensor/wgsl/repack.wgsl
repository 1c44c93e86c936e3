// The inputs of every repacking kernel: a run of whole rows as in the file, and its place in the matrix.
struct Params {
    // Index of the run's first block of 32 weights in the matrix; a multiple of the blocks that share words (`Format::unit`).
    first_block: u32,
    // Blocks of 32 weights in the run.
    blocks: u32,
    blocks_per_row: u32,
    columns: u32,
}

@group(0) @binding(0) var<storage, read> file: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

// The word that begins at a byte.
fn word_at(byte: u32) -> u32 {
    let off = byte % 4u * 8u;
    let word = file[byte / 4u] >> off;
    if off == 0u {
        return word;
    }
    return word | (file[byte / 4u + 1u] << (32u - off));
}

// The half word that begins at an even byte.
fn half_at(byte: u32) -> u32 {
    return (file[byte / 4u] >> (byte % 4u * 8u)) & 0xffffu;
}

fn byte_at(byte: u32) -> u32 {
    return (file[byte / 4u] >> (byte % 4u * 8u)) & 0xffu;
}
