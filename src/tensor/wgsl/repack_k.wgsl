// The layout of quants in a superblock of 256 weights of GGML's K types: a byte holds bits of several blocks of 32, byte l those of
// weight l of each. These functions gather the bits of one block.
#import "repack"

// Word `word` (of four) of the nibbles of 32 weights, as in Q4_0: byte j holds weight j in its low nibble and weight j + 16 in its
// high one. They are in 32 bytes from `byte` on, `shift` bits up.
fn nibbles_of(byte: u32, shift: u32, word: u32) -> u32 {
    let low = (word_at(byte + word * 4u) >> shift) & 0x0f0f0f0fu;
    let high = (word_at(byte + 16u + word * 4u) >> shift) & 0x0f0f0f0fu;
    return low | (high << 4u);
}

// Two bits of each of 16 weights, which are in 16 bytes from `byte` on, `shift` bits up. Weight 4k + i goes to byte i, bit 2k.
fn quarters_of(byte: u32, shift: u32) -> u32 {
    var word = 0u;
    for (var k = 0u; k < 4u; k++) {
        word |= ((word_at(byte + k * 4u) >> shift) & 0x03030303u) << (k * 2u);
    }
    return word;
}

// One bit of each of 32 weights, which are in 32 bytes from `byte` on, `shift` bits up. Weight 4k + i goes to byte i, bit k.
fn single_bits_of(byte: u32, shift: u32) -> u32 {
    var word = 0u;
    for (var k = 0u; k < 8u; k++) {
        word |= ((word_at(byte + k * 4u) >> shift) & 0x01010101u) << k;
    }
    return word;
}

// The factors and six-bit scales of Q4_K and Q5_K, 16 bytes from `byte` on, as `k_scales` reads them.
fn k_header(byte: u32) -> vec4<u32> {
    let scales = word_at(byte + 4u);
    let minima = word_at(byte + 8u);
    let rest = word_at(byte + 12u);
    var header = vec4<u32>(word_at(byte), 0u, 0u, 0u);
    for (var j = 0u; j < 4u; j++) {
        let s = (scales >> (j * 8u)) & 0xffu;
        let m = (minima >> (j * 8u)) & 0xffu;
        let r = (rest >> (j * 8u)) & 0xffu;
        header.y |= ((s & 15u) << (j * 4u)) | ((r & 15u) << (j * 4u + 16u));
        header.z |= ((m & 15u) << (j * 4u)) | ((r >> 4u) << (j * 4u + 16u));
        header.w |= (((s >> 4u) & 3u) << (j * 4u)) | (((m >> 4u) & 3u) << (j * 4u + 2u));
        header.w |= ((s >> 6u) << (j * 4u + 16u)) | ((m >> 6u) << (j * 4u + 18u));
    }
    return header;
}
