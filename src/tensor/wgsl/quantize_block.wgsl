// 32 numbers as int8: the largest becomes ±127, halves go to the even neighbour. A block whose numbers are all below 1e-30
// becomes zero, because its scale's inverse might not be an f32.
#import "block"
#import "int8_block"

fn largest(v: vec4<f32>) -> f32 {
    let a = abs(v);
    return max(max(a.x, a.y), max(a.z, a.w));
}

fn four_int8(v: vec4<f32>) -> u32 {
    let bytes = vec4<u32>(vec4<i32>(round(v))) & vec4<u32>(255u);
    return bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u);
}

fn quantize_block(b: Block) -> Int8Block {
    let low = max(max(largest(b.v0), largest(b.v1)), max(largest(b.v2), largest(b.v3)));
    let high = max(max(largest(b.v4), largest(b.v5)), max(largest(b.v6), largest(b.v7)));
    let most = max(low, high);
    if most < 1e-30 {
        return Int8Block(vec4<u32>(0u), vec4<u32>(0u), 0.0);
    }
    let inverse = 127.0 / most;
    return Int8Block(
        vec4<u32>(four_int8(b.v0 * inverse), four_int8(b.v1 * inverse), four_int8(b.v2 * inverse), four_int8(b.v3 * inverse)),
        vec4<u32>(four_int8(b.v4 * inverse), four_int8(b.v5 * inverse), four_int8(b.v6 * inverse), four_int8(b.v7 * inverse)),
        most / 127.0,
    );
}
