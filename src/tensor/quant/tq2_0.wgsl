#import "int8_weight"

// For a superblock 16 words: each byte has two bits of four weights, which are 32 apart.
@group(0) @binding(10) var<storage, read> weight_quants: array<vec4<u32>>;
// Two f16 scales of superblocks a word.
@group(0) @binding(11) var<storage, read> weight_scales: array<u32>;

struct Int8Raw { low: vec4<u32>, high: vec4<u32>, factor: u32 }

fn load_int8_raw(index: u32) -> Int8Raw {
    let super_block = index / 8u;
    let at = super_block * 4u + index % 8u / 4u * 2u;
    let shift = vec4<u32>(index % 4u * 2u);
    return Int8Raw(
        weight_quants[at] >> shift, weight_quants[at + 1u] >> shift, weight_scales[super_block / 2u] >> (super_block % 2u * 16u),
    );
}

fn unpack_int8(raw: Int8Raw) -> Int8Weights {
    let mask = vec4<u32>(0x03030303u);
    return Int8Weights(
        centred(raw.low & mask, 0x01010101u), centred(raw.high & mask, 0x01010101u),
        vec2<f32>(half_of(raw.factor, 0u)), vec2<f32>(0.0),
    );
}
