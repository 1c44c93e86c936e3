#import "block"

// One word of four 32-bit words holds the 16 bytes of a block as they stand in the file.
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
