// x · sigmoid(x).
fn silu(x: f32) -> f32 {
    // exp of more than 88 overflows f32, and what that gives is left open by WGSL.
    return x / (1.0 + exp(min(-x, 80.0)));
}
