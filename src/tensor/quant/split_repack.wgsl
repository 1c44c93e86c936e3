// For formats whose blocks stay as they are in the file: their words, without the f16 factor, go to one array, and the factors of two
// blocks to a word of the other, after the format's table; or the last word of each block. A block of the file is several blocks of 32
// weights, and as many invocations.
#import "repack"

@group(0) @binding(10) var<storage, read_write> weight_quants: array<u32>;
#ifdef FACTOR
@group(0) @binding(11) var<storage, read_write> weight_scales: array<u32>;
#endif
#ifdef WORD
@group(0) @binding(11) var<storage, read_write> weight_scales: array<u32>;

// Words before those of the groups.
fn table_words() -> u32 {
#ifdef WEIGHT_COLUMNS
    return 4u + params.columns / 2u;
#else
    return WEIGHT_TABLE;
#endif
}
#endif

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let block = (group.y * groups.x + group.x) * 64u + local;
    if block >= params.blocks {
        return;
    }
    let number = block / FILE_BLOCKS;
    let first = block % FILE_BLOCKS;
    let source = number * FILE_BYTES;
    let to = params.first_block / FILE_BLOCKS + number;
    for (var word = first; word < FILE_WORDS; word += FILE_BLOCKS) {
        weight_quants[to * FILE_WORDS + word] = word_at(source + BODY_AT + word * 4u);
    }
#ifdef FACTOR
    if first == 0u && number % 2u == 0u {
        var factors = half_at(source + FACTOR_AT);
        if block + FILE_BLOCKS < params.blocks {
            factors |= half_at(source + FILE_BYTES + FACTOR_AT) << 16u;
        }
        weight_scales[WEIGHT_TABLE + to / 2u] = factors;
    }
#endif
#ifdef WORD
    if first == 0u {
        weight_scales[table_words() + to] = word_at(source + BODY_AT + FILE_WORDS * 4u);
    }
#endif
}
