// Stores a row of one token's product: with APART in the output, else added to x, both in SoA. The kernel imports "soa" and defines
// `params.first_row`, the row of x of the product's first row, and `params.x_blocks`.
#ifdef BIAS
@group(0) @binding(BIAS_BINDING) var<storage, read> bias: array<f32>;
#endif
@group(0) @binding(X_BINDING) var<storage, read_write> x: array<f32>;

fn store_row(product_row: u32, product: f32) {
    let row = params.first_row + product_row;
    var value = product;
#ifdef BIAS
    value += bias[row];
#endif
    let at = soa_index(row, params.x_blocks);
#ifdef APART
    x[at] = value;
#else
#ifdef SCALED
    x[at] += value * SCALE;
#else
    x[at] += value;
#endif
#endif
}
