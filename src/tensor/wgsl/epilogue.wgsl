// The end of a product of matrices: stores it, optionally with a bias row, or added to a residual. The kernel defines
// `params.tokens` and `params.rows`.
#ifdef BIAS
@group(0) @binding(BIAS_BINDING) var<storage, read> bias: array<f32>;
#endif
@group(0) @binding(OUT_BINDING) var<storage, read_write> out: array<f32>;

// Tokens and rows past the end are left out.
fn store(token: u32, row: u32, value: f32) {
    if token >= params.tokens || row >= params.rows {
        return;
    }
    let at = token * params.rows + row;
    var result = value;
#ifdef BIAS
    result += bias[row];
#endif
#ifdef RESIDUAL
    result += out[at];
#endif
    out[at] = result;
}
