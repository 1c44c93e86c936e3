#import "int8_weight"
#import "k_scales"

// A vector of four 32-bit words holds the low nibbles of a block, in the order of Q4_0.
@group(0) @binding(10) var<storage, read> weight_quants: array<vec4<u32>>;
// For a superblock: its header, as `k_scales` reads it, then the fifth bits, in the order of `single_bits`, 32 bits a block.
@group(0) @binding(11) var<storage, read> weight_scales: array<vec4<u32>>;

struct Int8Raw { quants: vec4<u32>, header: vec4<u32>, fifths: u32, block: u32 }

fn load_int8_raw(index: u32) -> Int8Raw {
    let at = index / 8u * 3u;
    let i = index % 8u;
    return Int8Raw(weight_quants[index], weight_scales[at], weight_scales[at + 1u + i / 4u][i % 4u], i);
}

fn unpack_int8(raw: Int8Raw) -> Int8Weights {
    let scales = k_scales(raw.header, raw.block);
    return Int8Weights(
        low_nibbles(raw.quants) | (single_bits(raw.fifths, 0u) << vec4<u32>(4u)),
        high_nibbles(raw.quants) | (single_bits(raw.fifths, 4u) << vec4<u32>(4u)),
        scales.xx, scales.yy,
    );
}
