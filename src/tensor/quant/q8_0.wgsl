#import "block"
#import "int8_block"

// Two of these hold the 32 bytes of a block as in the file.
@group(0) @binding(10) var<storage, read> weight_quants: array<vec4<u32>>;
// Two f16 scales a word.
@group(0) @binding(11) var<storage, read> weight_scales: array<u32>;

fn bytes(word: u32, d: f32) -> vec4<f32> {
    // Each byte is shifted to the top and back, which extends its sign.
    let tops = vec4<i32>(vec4<u32>(word) << vec4<u32>(24u, 16u, 8u, 0u));
    return vec4<f32>(tops >> vec4<u32>(24u)) * d;
}

fn load_block(index: u32) -> Block {
    let q0 = weight_quants[index * 2u];
    let q1 = weight_quants[index * 2u + 1u];
    let scales = unpack2x16float(weight_scales[index / 2u]);
    let d = select(scales.x, scales.y, (index & 1u) == 1u);
    return Block(
        bytes(q0.x, d), bytes(q0.y, d), bytes(q0.z, d), bytes(q0.w, d),
        bytes(q1.x, d), bytes(q1.y, d), bytes(q1.z, d), bytes(q1.w, d),
    );
}

struct Int8Raw { low: vec4<u32>, high: vec4<u32>, scales: u32, is_odd: u32 }

fn load_int8_raw(index: u32) -> Int8Raw {
    return Int8Raw(weight_quants[index * 2u], weight_quants[index * 2u + 1u], weight_scales[index / 2u], index & 1u);
}

fn unpack_int8(raw: Int8Raw) -> Int8Weights {
    let scales = unpack2x16float(raw.scales);
    let scale = select(scales.x, scales.y, raw.is_odd == 1u);
    return Int8Weights(raw.low, raw.high, vec2<f32>(scale), vec2<f32>(0.0));
}

// The product with activations whose sum is `x_sum`: the scale once for the block.
fn dot_block(index: u32, x: Block, x_sum: f32) -> f32 {
    let q0 = weight_quants[index * 2u];
    let q1 = weight_quants[index * 2u + 1u];
    let scales = unpack2x16float(weight_scales[index / 2u]);
    let d = select(scales.x, scales.y, (index & 1u) == 1u);
    let w = Block(
        bytes(q0.x, 1.0), bytes(q0.y, 1.0), bytes(q0.z, 1.0), bytes(q0.w, 1.0),
        bytes(q1.x, 1.0), bytes(q1.y, 1.0), bytes(q1.z, 1.0), bytes(q1.w, 1.0),
    );
    return d * dot_blocks(w, x);
}
