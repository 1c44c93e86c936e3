// Logits as words with the same order; `step_logprobs.rs` computes the same.
const NAN_KEY: u32 = 0xffffffffu;
const NONE: u32 = 0xffffffffu;

// The key of a logit's bits; -0 is 0. No logit has the key 0. By its bits, because compilers may assume that x == x.
fn key_of(bits: u32) -> u32 {
    if (bits & 0x7fffffffu) > 0x7f800000u {
        return NAN_KEY;
    }
    if (bits >> 31u) == 0u || bits == 0x80000000u {
        return bits | 0x80000000u;
    }
    return ~bits;
}

fn logit_of(key: u32) -> f32 {
    return bitcast<f32>(select(~key, key & 0x7fffffffu, (key >> 31u) == 1u));
}

// A logit minus the largest, at least LEAST; 0 for the largest itself, even if it is infinite.
fn below_largest(key: u32, largest: u32) -> f32 {
    return select(max(logit_of(key) - logit_of(largest), LEAST), 0.0, key == largest);
}
