// For software adapters, without workgroup memory: each invocation computes two rows of the weight for four tokens, so that
// each block of weights is unpacked once for four.
#import "weight"

struct Params { rows: u32, columns: u32, blocks: u32, tokens: u32 }

@group(0) @binding(20) var<uniform> params: Params;

#import "activations"
#import "epilogue"

fn store2(token: u32, row: u32, values: vec2<f32>) {
    store(token, row, values.x);
    store(token, row + 1u, values.y);
}

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = id.x * 2u;
    let token = id.y * 4u;
    let last_row = params.rows - 1u;
    let last_token = params.tokens - 1u;
    if row > last_row || token > last_token {
        return;
    }
    // Rows and tokens past the end repeat the last one; only `store` leaves them out.
    let start0 = row * params.blocks;
    let start1 = min(row + 1u, last_row) * params.blocks;
    let token1 = min(token + 1u, last_token);
    let token2 = min(token + 2u, last_token);
    let token3 = min(token + 3u, last_token);

    var sum0 = vec2<f32>(0.0);
    var sum1 = vec2<f32>(0.0);
    var sum2 = vec2<f32>(0.0);
    var sum3 = vec2<f32>(0.0);
    for (var block = 0u; block < params.blocks; block++) {
        let w0 = load_block(start0 + block);
        let w1 = load_block(start1 + block);
        let x0 = load_activations(token, block);
        sum0 += vec2<f32>(dot_blocks(w0, x0), dot_blocks(w1, x0));
        let x1 = load_activations(token1, block);
        sum1 += vec2<f32>(dot_blocks(w0, x1), dot_blocks(w1, x1));
        let x2 = load_activations(token2, block);
        sum2 += vec2<f32>(dot_blocks(w0, x2), dot_blocks(w1, x2));
        let x3 = load_activations(token3, block);
        sum3 += vec2<f32>(dot_blocks(w0, x3), dot_blocks(w1, x3));
    }
    store2(token, row, sum0);
    store2(token + 1u, row, sum1);
    store2(token + 2u, row, sum2);
    store2(token + 3u, row, sum3);
}
