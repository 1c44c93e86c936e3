// What GGML's types IQ1, IQ2 and IQ3 share: a grid before the factors (`quant/grids.rs`), and signs.

// The f16 factor of a superblock, two of which share a word after the table.
#ifdef FACTOR
fn factor_of(super_block: u32) -> u32 {
    return weight_scales[WEIGHT_TABLE + super_block / 2u] >> (super_block % 2u * 16u);
}
#endif

// Seven signs; an eighth makes the number of minus signs even.
fn eight_signs(bits: u32) -> u32 {
    let seven = bits & 127u;
    return seven | ((countOneBits(seven) & 1u) << 7u);
}

// Four positive numbers, a byte each, with a minus sign where a bit is set.
fn with_signs(numbers: u32, signs: u32) -> u32 {
    let ones = ((signs & 15u) * 0x00204081u) & 0x01010101u;
    return (numbers ^ (ones * 255u)) + ones;
}

// The digits of eight numbers of a grid, 0 to 2, a byte each.
fn eight_digits(index: u32) -> vec2<u32> {
    return (vec2<u32>(weight_scales[index]) >> vec2<u32>(0u, 4u)) & vec2<u32>(0x0f0f0f0fu);
}

// Eight numbers of IQ2, which are 8, 25 or 43.
fn eight_numbers(index: u32, signs: u32) -> vec2<u32> {
    let digits = eight_digits(index);
    let numbers = digits * 17u + ((digits >> vec2<u32>(1u)) & vec2<u32>(0x01010101u)) + vec2<u32>(0x08080808u);
    return vec2<u32>(with_signs(numbers.x, signs), with_signs(numbers.y, signs >> 4u));
}

// Eight times eight numbers of IQ1, which are -1, 0 or 1, and one more or less.
fn shifted_numbers(index: u32, is_less: u32) -> vec2<u32> {
    let shift = select(0x79797979u, 0x77777777u, is_less == 1u);
    return ((eight_digits(index) << vec2<u32>(3u)) + vec2<u32>(shift)) ^ vec2<u32>(0x80808080u);
}
