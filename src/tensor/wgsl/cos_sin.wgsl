// Cosine and sine, within 1e-7 for |angle| < 2^18. The built-ins may be off by 2^-11, which changes a model's logits visibly.
// Reduction by quarter turns after Cody and Waite, π/2 in four parts, the first two exact when multiplied; polynomials on
// [-π/4, π/4] of the Cephes library (Moshier).
fn cos_sin(angle: f32) -> vec2<f32> {
    let quarters = round(angle * 0.636619772367581);
    let r = (((angle - quarters * 1.5) - quarters * 0.0703125) - quarters * 4.83751296997070312e-4)
        - quarters * 7.549789954891882e-8;
    let z = r * r;
    let s = r + r * z * (-1.6666654611e-1 + z * (8.3321608736e-3 - z * 1.9515295891e-4));
    let c = 1.0 - 0.5 * z + z * z * (4.166664568298827e-2 + z * (-1.388731625493765e-3 + z * 2.443315711809948e-5));
    switch i32(quarters) & 3 {
        case 0: { return vec2<f32>(c, s); }
        case 1: { return vec2<f32>(-s, c); }
        case 2: { return vec2<f32>(-c, -s); }
        default: { return vec2<f32>(s, -c); }
    }
}
