// Quants as other libraries pack them (`packing.rs`) → blocks of 32, one an invocation.

// A run of rows of the file, or of 32 columns each where it is by columns; what of it is taken, and where that goes.
struct Params {
    // The row of the matrix that the run's first row becomes, and the blocks of its rows.
    first_row: u32,
    blocks_per_row: u32,
    // The block of each row with which the run begins, and how many it has.
    first_block: u32,
    blocks: u32,
    // The rows that are taken, how many are before them in the file, and how many there are.
    rows: u32,
    skipped: u32,
    all_rows: u32,
}

@group(0) @binding(0) var<storage, read> file: array<u32>;
@group(0) @binding(10) var<storage, read_write> weight_quants: array<vec4<u32>>;
@group(0) @binding(11) var<storage, read_write> weight_scales: array<u32>;
@group(0) @binding(20) var<uniform> params: Params;

#ifdef BITS_8
const WORDS = 8u;
#else
const WORDS = 4u;
#endif

// Word `word` of a block's quants in the order of columns.
fn word_of(row: u32, block: u32, word: u32) -> u32 {
#ifdef AWQ
    let file_row = params.skipped + row;
    let stride = params.all_rows / 8u;
    let shift = (file_row % 8u / 2u + file_row % 2u * 4u) * 4u;
    let first = (block * 32u + word * 8u) * stride + file_row / 8u;
    var quants = 0u;
    for (var i = 0u; i < 8u; i++) {
        quants |= ((file[first + i * stride] >> shift) & 15u) << (i * 4u);
    }
    return quants;
#else
#ifdef STREAM
    // A word has 32 / WORDS quants, and a block's quants begin with a word of the file.
    const OF_WORD = 32u / WORDS;
    let first = (row * params.blocks + block) * STREAM;
    var quants = 0u;
    for (var i = 0u; i < OF_WORD; i++) {
        let bit = (word * OF_WORD + i) * STREAM;
        let at = first + bit / 32u;
        let shift = bit % 32u;
        var quant = file[at] >> shift;
        if shift + STREAM > 32u {
            quant |= file[at + 1u] << (32u - shift);
        }
        quants |= (quant & ((1u << STREAM) - 1u)) << (i * WORDS);
    }
    return quants;
#else
#ifdef COLUMNS
    return file[(block * WORDS + word) * params.all_rows + params.skipped + row];
#else
    return file[(row * params.blocks + block) * WORDS + word];
#endif
#endif
#endif
}

// Four nibbles as bytes.
fn spread(nibbles: u32) -> u32 {
    let pairs = (nibbles | (nibbles << 8u)) & 0x00ff00ffu;
    return (pairs | (pairs << 4u)) & 0x0f0f0f0fu;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let id = (group.y * groups.x + group.x) * 64u + local;
    if id >= params.rows * params.blocks {
        return;
    }
    // Neighbours read neighbouring words.
#ifdef COLUMNS
    let row = id % params.rows;
    let block = id / params.rows;
#else
    let row = id / params.blocks;
    let block = id % params.blocks;
#endif
    let to = (params.first_row + row) * params.blocks_per_row + params.first_block + block;
#ifdef BITS_8
    var low = vec4<u32>(word_of(row, block, 0u), word_of(row, block, 1u), word_of(row, block, 2u), word_of(row, block, 3u));
    var high = vec4<u32>(word_of(row, block, 4u), word_of(row, block, 5u), word_of(row, block, 6u), word_of(row, block, 7u));
#ifdef UNSIGNED
    low ^= vec4<u32>(0x80808080u);
    high ^= vec4<u32>(0x80808080u);
#endif
    weight_quants[to * 2u] = low;
    weight_quants[to * 2u + 1u] = high;
#else
    var words = vec4<u32>(word_of(row, block, 0u), word_of(row, block, 1u), word_of(row, block, 2u), word_of(row, block, 3u));
#ifdef HIGH_FIRST
    words = ((words & vec4<u32>(0x0f0f0f0fu)) << vec4<u32>(4u)) | ((words >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu));
#endif
    // The first 16 quants become low nibbles, the others high ones.
    weight_quants[to] = vec4<u32>(
        spread(words.x & 0xffffu) | (spread(words.z & 0xffffu) << 4u), spread(words.x >> 16u) | (spread(words.z >> 16u) << 4u),
        spread(words.y & 0xffffu) | (spread(words.w & 0xffffu) << 4u), spread(words.y >> 16u) | (spread(words.w >> 16u) << 4u),
    );
#endif
}
