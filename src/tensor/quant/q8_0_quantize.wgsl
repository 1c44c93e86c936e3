// One invocation quantises two blocks: the largest magnitude becomes 127, halves are rounded away from zero.
#import "quantize_rows"

// |x| · |id| rounded to a whole number, as the low byte of a signed one.
fn quant(x: f32, id: f32) -> u32 {
    let bits = bitcast<u32>(x * id);
    let e = (bits >> 23u) & 0xffu;
    if e < 126u {
        return 0u;
    }
    let shift = 150u - min(e, 149u);
    let n = (((bits & 0x7fffffu) | 0x800000u) + (1u << (shift - 1u))) >> shift;
    return select(n, 0u - n, bits >> 31u == 1u) & 0xffu;
}

fn four(block: u32, first: u32, id: f32) -> u32 {
    return quant(weight_of(block, first), id) | (quant(weight_of(block, first + 1u), id) << 8u)
        | (quant(weight_of(block, first + 2u), id) << 16u) | (quant(weight_of(block, first + 3u), id) << 24u);
}

// Writes a block's quants and returns its scale.
fn quantize(block: u32, to: u32) -> u32 {
    var largest = 0.0;
    for (var i = 0u; i < 32u; i++) {
        largest = max(largest, abs(weight_of(block, i)));
    }
    let d = divided_by_127(largest);
    let id = reciprocal(d);
    weight_quants[to * 2u] = vec4<u32>(four(block, 0u, id), four(block, 4u, id), four(block, 8u, id), four(block, 12u, id));
    weight_quants[to * 2u + 1u] = vec4<u32>(four(block, 16u, id), four(block, 20u, id), four(block, 24u, id), four(block, 28u, id));
    return f16_bits(d);
}
