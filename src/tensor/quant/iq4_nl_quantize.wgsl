// One invocation quantises two blocks: the weight of the largest magnitude becomes -127, the others the nearest values, and the scale is the
// best fit to these, weighted by squares. Products and sums are each rounded to f32.
#import "quantize_rows"

const VALUES = array<f32, 16>(
    -127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0,
);

// The place of the nearest value; of two as near, the larger.
fn nearest(x: f32) -> u32 {
    var values = VALUES;
    var place = 0u;
    for (var i = 1u; i < 16u; i++) {
        if values[i] - x <= x - values[i - 1u] {
            place = i;
        }
    }
    return place;
}

fn quantize(block: u32, to: u32) -> u32 {
    var values = VALUES;
    var largest = 0.0;
    for (var i = 0u; i < 32u; i++) {
        let x = weight_of(block, i);
        if abs(x) > abs(largest) {
            largest = x;
        }
    }
    if abs(largest) < 1e-15 {
        weight_quants[to] = vec4<u32>(0u);
        return 0u;
    }
    let d = divided_by_127(abs(largest));
    let id = reciprocal(select(d, -d, largest > 0.0));
    var products = 0.0;
    var squares = 0.0;
    var words = vec4<u32>(0u);
    for (var i = 0u; i < 32u; i++) {
        let x = weight_of(block, i);
        let place = nearest(unfused(x * id));
        words[i % 16u / 4u] |= place << (i % 4u * 8u + i / 16u * 4u);
        let weight = unfused(x * x);
        let value = values[place];
        products += unfused(unfused(weight * value) * x);
        squares += unfused(unfused(weight * value) * value);
    }
    weight_quants[to] = words;
    return f16_bits(divided(products, squares));
}
