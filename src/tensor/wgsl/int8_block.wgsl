// 32 numbers of a row as int8, four in a word, and the scale to multiply them with.
struct Int8Block { low: vec4<u32>, high: vec4<u32>, scale: f32 }

// 32 weights as int8: a weight is `scale · quant - offset`. With HALVES, the low and the high 16 have a scale and an offset each;
// otherwise both are the same. Without OFFSETS, there is nothing to subtract. The format of the weight sets these flags.
struct Int8Weights { low: vec4<u32>, high: vec4<u32>, scales: vec2<f32>, offsets: vec2<f32> }

// The sum of the products of four int8 each. `dot4I8Packed` is an instruction of most GPUs; browsers that lack it in WGSL
// compute the same sum with shifts, which extend the signs.
#ifdef PACKED_DOT
fn dot_int8(a: u32, b: u32) -> i32 {
    return dot4I8Packed(a, b);
}
#else
fn dot_int8(a: u32, b: u32) -> i32 {
    let shifts = vec4<u32>(24u, 16u, 8u, 0u);
    let x = vec4<i32>(vec4<u32>(a) << shifts) >> vec4<u32>(24u);
    let y = vec4<i32>(vec4<u32>(b) << shifts) >> vec4<u32>(24u);
    return dot(x, y);
}
#endif
