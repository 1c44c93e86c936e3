// Loads activations as blocks of 32. The kernel defines `params.columns`. With RAGGED, rows are not multiples of 32 long:
// they are read one by one and padded with zeros, as weights are.
#import "block"

#ifdef RAGGED
@group(0) @binding(0) var<storage, read> activations: array<f32>;

fn activation(start: u32, column: u32) -> f32 {
    if column >= params.columns {
        return 0.0;
    }
    return activations[start + column];
}

fn four_activations(start: u32, column: u32) -> vec4<f32> {
    return vec4<f32>(
        activation(start, column), activation(start, column + 1u),
        activation(start, column + 2u), activation(start, column + 3u),
    );
}

fn load_activations(row: u32, block: u32) -> Block {
    let start = row * params.columns;
    let c = block * 32u;
    return Block(
        four_activations(start, c), four_activations(start, c + 4u),
        four_activations(start, c + 8u), four_activations(start, c + 12u),
        four_activations(start, c + 16u), four_activations(start, c + 20u),
        four_activations(start, c + 24u), four_activations(start, c + 28u),
    );
}

// Four columns of the block; `word` is below 8.
fn load_four_activations(row: u32, block: u32, word: u32) -> vec4<f32> {
    return four_activations(row * params.columns, block * 32u + word * 4u);
}
#else
@group(0) @binding(0) var<storage, read> activations: array<vec4<f32>>;

fn load_four_activations(row: u32, block: u32, word: u32) -> vec4<f32> {
    return activations[row * (params.columns / 4u) + block * 8u + word];
}

fn load_activations(row: u32, block: u32) -> Block {
    let at = row * (params.columns / 4u) + block * 8u;
    return Block(
        activations[at], activations[at + 1u], activations[at + 2u], activations[at + 3u],
        activations[at + 4u], activations[at + 5u], activations[at + 6u], activations[at + 7u],
    );
}
#endif
