// The distance of typical tokens from the mean depth, digit by digit; `band.rs` explains it and the fields of a tally. The kernel
// binds `tally` as atomic words and imports "truncation" and "tally_sums". All invocations of a workgroup of 256 take part.
const BINS_EACH: u32 = BINS / 256u;

var<workgroup> cut_bin: u32;
var<workgroup> cut_mass: vec2<u32>;

fn typical_mass(row: u32, digit: u32, bin: u32) -> vec4<u32> {
    let at = row * TYPICAL + HEADER + 2u * digit * BINS + bin;
    return vec4<u32>(0u, atomicLoad(&tally[at]), atomicLoad(&tally[at + BINS]), 0u);
}

// The digits before one, and the mass of more typical tokens.
fn typical_digits(row: u32, digit: u32) -> vec3<u32> {
    if digit == 0u {
        return vec3<u32>(0u);
    }
    let at = row * TYPICAL + 4u * digit;
    return vec3<u32>(atomicLoad(&tally[at]), atomicLoad(&tally[at + 1u]), atomicLoad(&tally[at + 2u]));
}

fn typical_total(row: u32) -> vec2<u32> {
    return vec2<u32>(atomicLoad(&tally[row * TYPICAL + 1u]), atomicLoad(&tally[row * TYPICAL + 2u]));
}

// From the histogram of `digit` and the digits before it: the same with that digit.
fn typical_cut(row: u32, digit: u32, wanted: f32, local: u32) -> vec3<u32> {
    let before_digit = typical_digits(row, digit);
    if local == 0u {
        cut_bin = 0u;
        cut_mass = vec2<u32>(0u);
    }
    var own = vec4<u32>(0u);
    for (var i = 0u; i < BINS_EACH; i++) {
        own = tally_sum(own, typical_mass(row, digit, local * BINS_EACH + i));
    }
    var above = tally_sum(vec4<u32>(0u, before_digit.yz, 0u), tally_before(own, local));
    for (var i = 0u; i < BINS_EACH; i++) {
        let through = tally_sum(above, typical_mass(row, digit, local * BINS_EACH + i));
        if mass_as_float(above.yz) < wanted && wanted <= mass_as_float(through.yz) {
            cut_bin = local * BINS_EACH + i;
            cut_mass = above.yz;
        }
        above = through;
    }
    workgroupBarrier();
    return vec3<u32>((before_digit.x << 10u) | cut_bin, cut_mass);
}
