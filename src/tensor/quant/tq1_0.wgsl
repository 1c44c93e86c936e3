#import "int8_weight"

// For a superblock 12 words whose bytes have five weights each, and one with four.
@group(0) @binding(10) var<storage, read> weight_quants: array<u32>;
// Two f16 scales of superblocks a word.
@group(0) @binding(11) var<storage, read> weight_scales: array<u32>;

struct Int8Raw { low: vec4<u32>, high: vec4<u32>, factor: u32, block: u32 }

fn four_words(at: u32) -> vec4<u32> {
    return vec4<u32>(weight_quants[at], weight_quants[at + 1u], weight_quants[at + 2u], weight_quants[at + 3u]);
}

fn load_int8_raw(index: u32) -> Int8Raw {
    let super_block = index / 8u;
    let at = super_block * 13u;
    let i = index % 8u;
    let factor = weight_scales[super_block / 2u] >> (super_block % 2u * 16u);
    let low = four_words(at + select(0u, 8u, i > 4u));
    if i == 7u {
        return Int8Raw(low, vec4<u32>(weight_quants[at + 12u]), factor, i);
    }
    return Int8Raw(low, four_words(at + select(4u, 8u, i > 4u)), factor, i);
}

// A digit of each byte: the byte times a power of 3, modulo 256, has it on top.
fn digits(words: vec4<u32>, powers: vec4<u32>) -> vec4<u32> {
    let bytes = vec4<u32>(0x00ff00ffu);
    let even = (((words & bytes) * powers) & bytes) * 3u;
    let odd = ((((words >> vec4<u32>(8u)) & bytes) * powers) & bytes) * 3u;
    return ((even >> vec4<u32>(8u)) & vec4<u32>(0x00030003u)) | (odd & vec4<u32>(0x03000300u));
}

fn power_of_3(exponent: u32) -> u32 {
    return select(select(1u, 3u, exponent == 1u), select(select(9u, 27u, exponent == 3u), 81u, exponent == 4u), exponent > 1u);
}

fn unpack_int8(raw: Int8Raw) -> Int8Weights {
    // The first five blocks are a digit each of 32 bytes; then come the five digits of 16 bytes, and four of four bytes.
    let first = select(raw.block, raw.block * 2u - 10u, raw.block > 4u);
    let low = digits(raw.low, vec4<u32>(power_of_3(first)));
    let second = vec4<u32>(power_of_3(select(first, first + 1u, raw.block > 4u)));
    let high = digits(raw.high, select(second, vec4<u32>(1u, 3u, 9u, 27u), raw.block == 7u));
    return Int8Weights(
        centred(low, 0x01010101u), centred(high, 0x01010101u), vec2<f32>(half_of(raw.factor, 0u)), vec2<f32>(0.0),
    );
}
