// The activation of a feed-forward.
#ifdef GELU
#ifdef GELU_ERF
// x Φ(x) with Φ(x) = ½ erfc(-x / √2). The polynomial gives erfc of positive numbers, so Φ of negative ones.
fn activate(x: f32) -> f32 {
    let z = min(abs(x) * 0.70710678, 9.0);
    let t = 1.0 / (1.0 + 0.5 * z);
    let high = (((0.17087277 * t - 0.82215223) * t + 1.48851587) * t - 1.13520398) * t + 0.27886807;
    let low = (((high * t - 0.18628806) * t + 0.09678418) * t + 0.37409196) * t + 1.00002368;
    let tail = 0.5 * t * exp(low * t - 1.26551223 - z * z);
    return x * select(tail, 1.0 - tail, x >= 0.0);
}
#else
// ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))) with ½ (1 + tanh(a)) = sigmoid(2a) (Hendrycks, Gimpel 2016). Past ±30 it is x or 0.
fn activate(x: f32) -> f32 {
    let y = clamp(x, -30.0, 30.0);
    let a = 1.5957691216 * y * (1.0 + 0.044715 * y * y);
    return x / (1.0 + exp(clamp(-a, -80.0, 80.0)));
}
#endif
#else
#ifdef RELU
fn activate(x: f32) -> f32 {
    let y = max(x, 0.0);
#ifdef SQUARED
    return y * y;
#else
    return y;
#endif
}
#else
#ifdef SILU_SCALE
// y · sigmoid(y) of y = x · scale.
fn activate(x: f32) -> f32 {
    let y = x * SILU_SCALE;
    return y / (1.0 + exp(min(-y, 80.0)));
}
#else
// x · sigmoid(x).
fn activate(x: f32) -> f32 {
    // exp of more than 88 overflows f32, and WGSL does not specify the result.
    return x / (1.0 + exp(min(-x, 80.0)));
}
#endif
#endif
#endif
