// The 16 values of GGML's types IQ4 (`kvalues_iq4nl`), for nibbles in bytes. A table would be in memory; selecting bit by bit takes
// only some operations for four of them.
fn pick(zero: u32, one: u32, mask: vec4<u32>) -> vec4<u32> {
    return vec4<u32>(zero) ^ (vec4<u32>(zero ^ one) & mask);
}

fn pick_words(zero: vec4<u32>, one: vec4<u32>, mask: vec4<u32>) -> vec4<u32> {
    return zero ^ ((zero ^ one) & mask);
}

// Bytes of ones where a bit is set.
fn mask_of(nibbles: vec4<u32>, bit: u32) -> vec4<u32> {
    return ((nibbles >> vec4<u32>(bit)) & vec4<u32>(0x01010101u)) * 255u;
}

fn iq4_values(nibbles: vec4<u32>) -> vec4<u32> {
    let m0 = mask_of(nibbles, 0u);
    let m1 = mask_of(nibbles, 1u);
    let m2 = mask_of(nibbles, 2u);
    let m3 = mask_of(nibbles, 3u);
    // -127 -104 -83 -65
    let a = pick_words(pick(0x81818181u, 0x98989898u, m0), pick(0xadadadadu, 0xbfbfbfbfu, m0), m1);
    // -49 -35 -22 -10
    let b = pick_words(pick(0xcfcfcfcfu, 0xddddddddu, m0), pick(0xeaeaeaeau, 0xf6f6f6f6u, m0), m1);
    // 1 13 25 38
    let c = pick_words(pick(0x01010101u, 0x0d0d0d0du, m0), pick(0x19191919u, 0x26262626u, m0), m1);
    // 53 69 89 113
    let d = pick_words(pick(0x35353535u, 0x45454545u, m0), pick(0x59595959u, 0x71717171u, m0), m1);
    return pick_words(pick_words(a, b, m2), pick_words(c, d, m2), m3);
}
