#import "int8_weight"

// A vector of four 32-bit words holds the 16 bytes of a block as in the file.
@group(0) @binding(10) var<storage, read> weight_quants: array<vec4<u32>>;
// The scale and the minimum of a block in f16.
@group(0) @binding(11) var<storage, read> weight_scales: array<u32>;

struct Int8Raw { quants: vec4<u32>, scales: u32 }

fn load_int8_raw(index: u32) -> Int8Raw {
    return Int8Raw(weight_quants[index], weight_scales[index]);
}

fn unpack_int8(raw: Int8Raw) -> Int8Weights {
    let scales = unpack2x16float(raw.scales);
    return Int8Weights(low_nibbles(raw.quants), high_nibbles(raw.quants), scales.xx, -scales.yy);
}
