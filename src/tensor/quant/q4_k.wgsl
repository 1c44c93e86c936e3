#import "int8_weight"
#import "k_scales"

// A vector of four 32-bit words holds the nibbles of a block, in the order of Q4_0.
@group(0) @binding(10) var<storage, read> weight_quants: array<vec4<u32>>;
// The header of a superblock, as `k_scales` reads it.
@group(0) @binding(11) var<storage, read> weight_scales: array<vec4<u32>>;

struct Int8Raw { quants: vec4<u32>, header: vec4<u32>, block: u32 }

fn load_int8_raw(index: u32) -> Int8Raw {
    return Int8Raw(weight_quants[index], weight_scales[index / 8u], index % 8u);
}

fn unpack_int8(raw: Int8Raw) -> Int8Weights {
    let scales = k_scales(raw.header, raw.block);
    return Int8Weights(low_nibbles(raw.quants), high_nibbles(raw.quants), scales.xx, scales.yy);
}
