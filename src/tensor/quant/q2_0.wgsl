#import "int8_weight"

// Two bits for each of a block's weights, four a byte.
@group(0) @binding(10) var<storage, read> weight_quants: array<vec2<u32>>;
// The f16 scales of two blocks each, two a word.
@group(0) @binding(11) var<storage, read> weight_scales: array<u32>;

struct Int8Raw { quants: vec2<u32>, factor: u32 }

fn load_int8_raw(index: u32) -> Int8Raw {
    return Int8Raw(weight_quants[index], weight_scales[index / 4u] >> (index / 2u % 2u * 16u));
}

// Each byte of a word as four numbers, a byte each.
fn spread(word: u32) -> vec4<u32> {
    let bytes = vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u);
    let first = (bytes & vec4<u32>(3u)) | ((bytes & vec4<u32>(0x0cu)) << vec4<u32>(6u));
    return first | ((bytes & vec4<u32>(0x30u)) << vec4<u32>(12u)) | ((bytes & vec4<u32>(0xc0u)) << vec4<u32>(18u));
}

fn unpack_int8(raw: Int8Raw) -> Int8Weights {
    return Int8Weights(
        centred(spread(raw.quants.x), 0x01010101u), centred(spread(raw.quants.y), 0x01010101u),
        vec2<f32>(half_of(raw.factor, 0u)), vec2<f32>(0.0),
    );
}
