#import "block"
#import "int8_block"

// A vector of four 32-bit words holds the 16 bytes of a block as in the file.
@group(0) @binding(10) var<storage, read> weight_quants: array<vec4<u32>>;
// Two f16 scales a word.
@group(0) @binding(11) var<storage, read> weight_scales: array<u32>;

const NIBBLE_SHIFTS = vec4<u32>(0u, 8u, 16u, 24u);

fn nibbles(word: u32, d: f32) -> vec4<f32> {
    return (vec4<f32>((vec4<u32>(word) >> NIBBLE_SHIFTS) & vec4<u32>(15u)) - 8.0) * d;
}

fn load_block(index: u32) -> Block {
    let low = weight_quants[index];
    let high = low >> vec4<u32>(4u);
    let scales = unpack2x16float(weight_scales[index / 2u]);
    let d = select(scales.x, scales.y, (index & 1u) == 1u);
    return Block(
        nibbles(low.x, d), nibbles(low.y, d), nibbles(low.z, d), nibbles(low.w, d),
        nibbles(high.x, d), nibbles(high.y, d), nibbles(high.z, d), nibbles(high.w, d),
    );
}

struct Int8Raw { quants: vec4<u32>, scales: u32, is_odd: u32 }

fn load_int8_raw(index: u32) -> Int8Raw {
    return Int8Raw(weight_quants[index], weight_scales[index / 2u], index & 1u);
}

// Subtracts eight from each byte of nibbles; the top bits keep borrows from the next byte.
fn centred(nibbles: vec4<u32>) -> vec4<u32> {
    let tops = vec4<u32>(0x80808080u);
    return ((nibbles | tops) - vec4<u32>(0x08080808u)) ^ tops;
}

fn unpack_int8(raw: Int8Raw) -> Int8Weights {
    let mask = vec4<u32>(0x0f0f0f0fu);
    let scales = unpack2x16float(raw.scales);
    return Int8Weights(
        centred(raw.quants & mask),
        centred((raw.quants >> vec4<u32>(4u)) & mask),
        vec2<f32>(select(scales.x, scales.y, raw.is_odd == 1u)),
        vec2<f32>(0.0),
    );
}

fn whole_nibbles(word: u32) -> vec4<f32> {
    return vec4<f32>((vec4<u32>(word) >> NIBBLE_SHIFTS) & vec4<u32>(15u));
}

// The product with activations whose sum is `x_sum`: the scale and the offset of 8 once for the block.
fn dot_block(index: u32, x: Block, x_sum: f32) -> f32 {
    let low = weight_quants[index];
    let high = low >> vec4<u32>(4u);
    let scales = unpack2x16float(weight_scales[index / 2u]);
    let d = select(scales.x, scales.y, (index & 1u) == 1u);
    let w = Block(
        whole_nibbles(low.x), whole_nibbles(low.y), whole_nibbles(low.z), whole_nibbles(low.w),
        whole_nibbles(high.x), whole_nibbles(high.y), whole_nibbles(high.z), whole_nibbles(high.w),
    );
    return d * (dot_blocks(w, x) - 8.0 * x_sum);
}
