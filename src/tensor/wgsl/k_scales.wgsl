// The scales and offsets of a block of 32 in GGML's types Q4_K and Q5_K: two factors in f16, and six bits for each block. The
// repacked header holds the factors, then the low four bits of the eight scales, those of the eight minima, and the high two bits
// of both.
fn k_scales(header: vec4<u32>, block: u32) -> vec2<f32> {
    let low = (header.yz >> vec2<u32>(block * 4u)) & vec2<u32>(15u);
    let high = (vec2<u32>(header.w) >> (vec2<u32>(0u, 2u) + vec2<u32>(block * 4u))) & vec2<u32>(3u);
    return unpack2x16float(header.x) * vec2<f32>(low | (high << vec2<u32>(4u)));
}
