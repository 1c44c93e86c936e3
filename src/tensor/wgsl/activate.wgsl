// What the gate of a feed-forward goes through.
#ifdef GELU
// ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))) with ½ (1 + tanh(a)) = sigmoid(2a) (Hendrycks, Gimpel 2016). Past ±30 it is x or 0.
fn activate(x: f32) -> f32 {
    let y = clamp(x, -30.0, 30.0);
    let a = 1.5957691216 * y * (1.0 + 0.044715 * y * y);
    return x / (1.0 + exp(clamp(-a, -80.0, 80.0)));
}
#else
// x · sigmoid(x).
fn activate(x: f32) -> f32 {
    // exp of more than 88 overflows f32, and what that gives is left open by WGSL.
    return x / (1.0 + exp(min(-x, 80.0)));
}
#endif
