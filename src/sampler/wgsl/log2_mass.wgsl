// Binary logarithm of a mass in units of 2^mass_bits, to 19 bits after the point, rounded down: by squaring the mantissa. `band.rs`
// computes the same. The kernel imports "truncation".
fn log2_mass(mass: vec2<u32>, mass_bits: u32) -> f32 {
    if (mass.x | mass.y) == 0u {
        return 0.0;
    }
    var log = 31u - countLeadingZeros(mass.x);
    var mantissa = mass.x << (31u - log);
    if mass.y != 0u {
        log = 31u - countLeadingZeros(mass.y);
        mantissa = mass.y;
        if log < 31u {
            mantissa = (mass.y << (31u - log)) | (mass.x >> (log + 1u));
        }
        log += 32u;
    }
    for (var i = 0u; i < 19u; i++) {
        let square = high_product(mantissa, mantissa);
        let bit = square >> 31u;
        log = 2u * log + bit;
        mantissa = square << (1u - bit);
    }
    return f32(i32(log) - i32(mass_bits << 19u)) / 524288.0;
}
