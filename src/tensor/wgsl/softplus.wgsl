// log(1 + exp(x)). Where 1 + e would lose digits of e, the series of log(1 + e).
fn softplus(x: f32) -> f32 {
    let e = exp(min(x, 20.0));
    let series = e * (1.0 - e * (0.5 - e * (0.33333333 - e * (0.25 - e * (0.2 - e * 0.16666667)))));
    return select(select(log(1.0 + e), series, e < 0.06), x, x > 20.0);
}
