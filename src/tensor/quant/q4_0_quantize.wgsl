// One invocation quantises two blocks: the weight of the largest magnitude becomes −8, and x becomes x / d + 8.5
// truncated to a whole number, with product and sum each rounded to f32.
#import "quantize_rows"

fn quant(x: f32, id: f32) -> u32 {
    return min(u32(unfused(x * id) + 8.5), 15u);
}

// Four bytes: weights i to i + 3 in the low nibbles, i + 16 to i + 19 in the high ones.
fn four(block: u32, first: u32, id: f32) -> u32 {
    var word = 0u;
    for (var i = 0u; i < 4u; i++) {
        let low = quant(weight_of(block, first + i), id);
        let high = quant(weight_of(block, first + i + 16u), id);
        word |= (low | (high << 4u)) << (i * 8u);
    }
    return word;
}

// Writes a block's quants and returns its scale.
fn quantize(block: u32, to: u32) -> u32 {
    var largest = 0.0;
    for (var i = 0u; i < 32u; i++) {
        let x = weight_of(block, i);
        if abs(x) > abs(largest) {
            largest = x;
        }
    }
    let d = largest * -0.125;
    let id = reciprocal(d);
    weight_quants[to] = vec4<u32>(four(block, 0u, id), four(block, 4u, id), four(block, 8u, id), four(block, 12u, id));
    return f16_bits(d);
}
