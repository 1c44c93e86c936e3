// The fifth bits of Q5_0 and Q5_1: bit j of a word is that of weight j. Turned into the order of `single_bits`: weight 4k + i goes to
// byte i, bit k.
fn fifth_bits(word: u32) -> u32 {
    var result = 0u;
    for (var k = 0u; k < 8u; k++) {
        // The product moves bit i of four to byte i.
        result |= ((((word >> (k * 4u)) & 15u) * 0x00204081u) & 0x01010101u) << k;
    }
    return result;
}
