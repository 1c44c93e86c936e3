#import "int8_weight"

// Quants of a block: of eight bits two vectors, of four one, in the order of Q4_0.
@group(0) @binding(10) var<storage, read> weight_quants: array<vec4<u32>>;
// A word for each group.
@group(0) @binding(11) var<storage, read> weight_scales: array<u32>;

#ifdef BITS_8
struct Int8Raw { low: vec4<u32>, high: vec4<u32>, group: u32 }

fn load_int8_raw(index: u32) -> Int8Raw {
    return Int8Raw(weight_quants[index * 2u], weight_quants[index * 2u + 1u], weight_scales[index / WEIGHT_GROUP]);
}
#else
struct Int8Raw { quants: vec4<u32>, group: u32 }

fn load_int8_raw(index: u32) -> Int8Raw {
    return Int8Raw(weight_quants[index], weight_scales[index / WEIGHT_GROUP]);
}
#endif

fn unpack_int8(raw: Int8Raw) -> Int8Weights {
#ifdef ZERO_POINT
    let scale = bitcast<f32>(raw.group & 0xffffff00u);
    let zero = raw.group & 255u;
#ifdef BITS_8
    return Int8Weights(raw.low, raw.high, vec2<f32>(scale), vec2<f32>(scale * (f32(zero) - 128.0)));
#else
    let zeros = zero * 0x01010101u;
    return Int8Weights(
        centred(low_nibbles(raw.quants), zeros), centred(high_nibbles(raw.quants), zeros), vec2<f32>(scale), vec2<f32>(0.0),
    );
#endif
#else
#ifdef SUMMAND
#ifdef BF16
    let pair = bitcast<vec2<f32>>(vec2<u32>(raw.group << 16u, raw.group & 0xffff0000u));
#else
    let pair = unpack2x16float(raw.group);
#endif
#ifdef BITS_8
    return Int8Weights(raw.low, raw.high, pair.xx, vec2<f32>(-128.0 * pair.x - pair.y));
#else
    return Int8Weights(low_nibbles(raw.quants), high_nibbles(raw.quants), pair.xx, -pair.yy);
#endif
#else
    return Int8Weights(raw.low, raw.high, vec2<f32>(bitcast<f32>(raw.group)), vec2<f32>(0.0));
#endif
#endif
}
