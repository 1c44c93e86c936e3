// For software adapters, without workgroup memory: each invocation computes a block of 32 columns for four tokens. It takes four rows a round,
// since llvmpipe ends a loop after 65,535 rounds and a head may have more rows.
#import "weight"

struct Params { rows: u32, columns: u32, blocks: u32, tokens: u32 }

@group(0) @binding(0) var<storage, read> gradient: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

// Rows and tokens past the end count nothing.
fn gradient_at(token: u32, row: u32) -> f32 {
    if row >= params.rows || token >= params.tokens {
        return 0.0;
    }
    return gradient[token * params.rows + row];
}

fn four_gradients(token: u32, row: u32) -> vec4<f32> {
    return vec4<f32>(
        gradient_at(token, row), gradient_at(token, row + 1u), gradient_at(token, row + 2u), gradient_at(token, row + 3u),
    );
}

fn row_block(row: u32, block: u32) -> Block {
    return load_block(min(row, params.rows - 1u) * params.blocks + block);
}

fn add_rows(sum: Block, g: vec4<f32>, w0: Block, w1: Block, w2: Block, w3: Block) -> Block {
    return add(add(add(add(sum, w0, g.x), w1, g.y), w2, g.z), w3, g.w);
}

fn add(sum: Block, w: Block, g: f32) -> Block {
    return Block(
        sum.v0 + g * w.v0, sum.v1 + g * w.v1, sum.v2 + g * w.v2, sum.v3 + g * w.v3,
        sum.v4 + g * w.v4, sum.v5 + g * w.v5, sum.v6 + g * w.v6, sum.v7 + g * w.v7,
    );
}

fn store4(token: u32, column: u32, values: vec4<f32>) {
    for (var i = 0u; i < 4u; i++) {
        if token < params.tokens && column + i < params.columns {
            out[token * params.columns + column + i] = values[i];
        }
    }
}

fn store(token: u32, column: u32, values: Block) {
    store4(token, column, values.v0);
    store4(token, column + 4u, values.v1);
    store4(token, column + 8u, values.v2);
    store4(token, column + 12u, values.v3);
    store4(token, column + 16u, values.v4);
    store4(token, column + 20u, values.v5);
    store4(token, column + 24u, values.v6);
    store4(token, column + 28u, values.v7);
}

fn nothing() -> Block {
    let zero = vec4<f32>(0.0);
    return Block(zero, zero, zero, zero, zero, zero, zero, zero);
}

@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let block = group.x * 32u + local;
    let token = group.y * 4u;
    if block >= params.blocks {
        return;
    }
    var sum0 = nothing();
    var sum1 = nothing();
    var sum2 = nothing();
    var sum3 = nothing();
    for (var first = 0u; first < params.rows; first += 4u) {
        let w0 = row_block(first, block);
        let w1 = row_block(first + 1u, block);
        let w2 = row_block(first + 2u, block);
        let w3 = row_block(first + 3u, block);
        sum0 = add_rows(sum0, four_gradients(token, first), w0, w1, w2, w3);
        sum1 = add_rows(sum1, four_gradients(token + 1u, first), w0, w1, w2, w3);
        sum2 = add_rows(sum2, four_gradients(token + 2u, first), w0, w1, w2, w3);
        sum3 = add_rows(sum3, four_gradients(token + 3u, first), w0, w1, w2, w3);
    }
    store(token, block * 32u, sum0);
    store(token + 1u, block * 32u, sum1);
    store(token + 2u, block * 32u, sum2);
    store(token + 3u, block * 32u, sum3);
}
