// How a token of a gated delta net changes a head's state: the share of the old state that stays, and the rate of what is learned. The kernel
// binds `alpha`, `beta` and `vectors`.
fn rate_of(row: u32, head: u32) -> f32 {
    let x = beta[row * params.beta_columns + params.beta_first + head];
    return 1.0 / (1.0 + exp(min(-x, 80.0)));
}

fn decay_of(row: u32, head: u32) -> f32 {
    let x = alpha[row * params.alpha_columns + params.alpha_first + head] + vectors[params.heads + head];
    let step = select(log(1.0 + exp(min(x, 20.0))), x, x > 20.0);
    return exp(vectors[head] * step);
}
