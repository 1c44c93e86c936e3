// Bytes of ones where a bit is set.
fn mask_of(nibbles: vec4<u32>, bit: u32) -> vec4<u32> {
    return ((nibbles >> vec4<u32>(bit)) & vec4<u32>(0x01010101u)) * 255u;
}

// Twice the values of four-bit floats (E2M1) in bytes: 0 1 2 3 4 6 8 12 and their negatives.
fn doubled_e2m1(nibbles: vec4<u32>) -> vec4<u32> {
    // 4 or 6, and twice that: those with the third bit. The others are the value of their two bits.
    let large = vec4<u32>(0x04040404u) + ((nibbles & vec4<u32>(0x01010101u)) << vec4<u32>(1u));
    let larger = large + (large & mask_of(nibbles, 1u));
    let small = nibbles & vec4<u32>(0x03030303u);
    let value = small ^ ((small ^ larger) & mask_of(nibbles, 2u));
    let tops = vec4<u32>(0x80808080u);
    let negative = (tops - value) ^ tops;
    return value ^ ((value ^ negative) & mask_of(nibbles, 3u));
}
