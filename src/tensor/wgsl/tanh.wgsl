// The built-in tanh may divide infinity by infinity far out and be off by 1e-5 near zero. There it is an odd polynomial, of the
// Cephes library (Moshier).
fn tanh_of(x: vec4<f32>) -> vec4<f32> {
    let z = x * x;
    let p = (((-5.70498872745e-3 * z + 2.06390887954e-2) * z - 5.37397155531e-2) * z + 1.33314422036e-1) * z;
    let near = x + x * z * (p - 3.33332819422e-1);
    let far = sign(x) * (1.0 - 2.0 / (exp(2.0 * min(abs(x), vec4<f32>(20.0))) + 1.0));
    return select(far, near, abs(x) < vec4<f32>(0.625));
}
