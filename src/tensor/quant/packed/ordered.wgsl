#import "block"

// Quants of a block: of eight bits two vectors, of four one, in the order of Q4_0.
@group(0) @binding(10) var<storage, read> weight_quants: array<vec4<u32>>;
// The blocks and the groups of a row, and where the words of the groups begin; one word; of each column its group, two in a word; then a
// word for each group of each row: a scale, and a zero point in the lowest eight bits.
@group(0) @binding(11) var<storage, read> weight_scales: array<u32>;

fn weight_of(quant: u32, group: u32) -> f32 {
    return (f32(quant) - f32(group & 255u)) * bitcast<f32>(group & 0xffffff00u);
}

// Four columns from `column` on, a multiple of four; `first` is the row's first word of a group.
fn four_weights(quants: vec4<u32>, column: u32, first: u32) -> vec4<f32> {
    let a = weight_scales[4u + column / 2u];
    let b = weight_scales[5u + column / 2u];
    return vec4<f32>(
        weight_of(quants.x, weight_scales[first + (a & 0xffffu)]), weight_of(quants.y, weight_scales[first + (a >> 16u)]),
        weight_of(quants.z, weight_scales[first + (b & 0xffffu)]), weight_of(quants.w, weight_scales[first + (b >> 16u)]),
    );
}

const BYTES = vec4<u32>(0u, 8u, 16u, 24u);

#ifdef BITS_8
// The quants are stored less 128.
fn low_quants(index: u32, word: u32) -> vec4<u32> {
    return ((vec4<u32>(weight_quants[index * 2u][word]) >> BYTES) & vec4<u32>(255u)) ^ vec4<u32>(128u);
}

fn high_quants(index: u32, word: u32) -> vec4<u32> {
    return ((vec4<u32>(weight_quants[index * 2u + 1u][word]) >> BYTES) & vec4<u32>(255u)) ^ vec4<u32>(128u);
}
#else
fn low_quants(index: u32, word: u32) -> vec4<u32> {
    return (vec4<u32>(weight_quants[index][word]) >> BYTES) & vec4<u32>(15u);
}

fn high_quants(index: u32, word: u32) -> vec4<u32> {
    return (vec4<u32>(weight_quants[index][word]) >> (BYTES + vec4<u32>(4u))) & vec4<u32>(15u);
}
#endif

fn load_block(index: u32) -> Block {
    let blocks = weight_scales[0];
    let first = weight_scales[2] + index / blocks * weight_scales[1];
    let column = index % blocks * 32u;
    return Block(
        four_weights(low_quants(index, 0u), column, first), four_weights(low_quants(index, 1u), column + 4u, first),
        four_weights(low_quants(index, 2u), column + 8u, first), four_weights(low_quants(index, 3u), column + 12u, first),
        four_weights(high_quants(index, 0u), column + 16u, first), four_weights(high_quants(index, 1u), column + 20u, first),
        four_weights(high_quants(index, 2u), column + 24u, first), four_weights(high_quants(index, 3u), column + 28u, first),
    );
}

// The product with activations whose sum is `x_sum`.
fn dot_block(index: u32, x: Block, x_sum: f32) -> f32 {
    return dot_blocks(load_block(index), x);
}
