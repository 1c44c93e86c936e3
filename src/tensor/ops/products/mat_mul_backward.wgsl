// A workgroup of 128 invocations computes a tile of 64 tokens × 64 columns, each invocation 8 tokens × 4 columns of it. Per step, 32 rows
// of both operands are in workgroup memory: of the weight two blocks of each row, of the gradient words of four rows.
#import "weight"

struct Params { rows: u32, columns: u32, blocks: u32, tokens: u32 }

@group(0) @binding(0) var<storage, read> gradient: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

const TILE = 64u;
const ROWS = 32u;

// Together they use all of the 16 KiB that every WebGPU device has.
var<workgroup> w_words: array<vec4<f32>, ROWS * 16u>;
var<workgroup> g_words: array<vec4<f32>, TILE * 8u>;

// The place of four rows of a token. Words that are read at once are in different banks.
fn place(word: u32, token: u32) -> u32 {
    return word * TILE + (token ^ word);
}

fn store_weights(at: u32, w: Block) {
    w_words[at] = w.v0;
    w_words[at + 1u] = w.v1;
    w_words[at + 2u] = w.v2;
    w_words[at + 3u] = w.v3;
    w_words[at + 4u] = w.v4;
    w_words[at + 5u] = w.v5;
    w_words[at + 6u] = w.v6;
    w_words[at + 7u] = w.v7;
}

// Rows and tokens past the end count nothing.
fn gradient_at(token: u32, row: u32) -> f32 {
    if row >= params.rows || token >= params.tokens {
        return 0.0;
    }
    return gradient[token * params.rows + row];
}

fn products(sum: vec4<f32>, g: vec4<f32>, w0: vec4<f32>, w1: vec4<f32>, w2: vec4<f32>, w3: vec4<f32>) -> vec4<f32> {
    var result = fma(vec4<f32>(g.x), w0, sum);
    result = fma(vec4<f32>(g.y), w1, result);
    result = fma(vec4<f32>(g.z), w2, result);
    return fma(vec4<f32>(g.w), w3, result);
}

fn store(token: u32, column: u32, value: f32) {
    if token < params.tokens && column < params.columns {
        out[token * params.columns + column] = value;
    }
}

fn store4(token: u32, column: u32, values: vec4<f32>) {
    store(token, column, values.x);
    store(token, column + 1u, values.y);
    store(token, column + 2u, values.z);
    store(token, column + 3u, values.w);
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let first_token = group.x * TILE;
    let first_block = group.y * 2u;
    let column_word = local % 16u;
    let token = local / 16u;

    // This invocation unpacks one block of the weight, if it is one of the first 64, and loads four words of the gradient.
    let w_row = local / 2u;
    let w_block = min(first_block + local % 2u, params.blocks - 1u);

    var out0 = vec4<f32>(0.0);
    var out1 = vec4<f32>(0.0);
    var out2 = vec4<f32>(0.0);
    var out3 = vec4<f32>(0.0);
    var out4 = vec4<f32>(0.0);
    var out5 = vec4<f32>(0.0);
    var out6 = vec4<f32>(0.0);
    var out7 = vec4<f32>(0.0);
    for (var first_row = 0u; first_row < params.rows; first_row += ROWS) {
        if local < 64u {
            let row = min(first_row + w_row, params.rows - 1u);
            store_weights(w_row * 16u + (local % 2u) * 8u, load_block(row * params.blocks + w_block));
        }
        for (var index = local; index < TILE * 8u; index += 128u) {
            let word = index % 8u;
            let g_token = index / 8u;
            let row = first_row + word * 4u;
            let source = first_token + g_token;
            g_words[place(word, g_token)] = vec4<f32>(
                gradient_at(source, row), gradient_at(source, row + 1u),
                gradient_at(source, row + 2u), gradient_at(source, row + 3u),
            );
        }
        workgroupBarrier();
        for (var word = 0u; word < 8u; word++) {
            let w_at = word * 64u + column_word;
            let w0 = w_words[w_at];
            let w1 = w_words[w_at + 16u];
            let w2 = w_words[w_at + 32u];
            let w3 = w_words[w_at + 48u];
            let g_at = place(word, token);
            out0 = products(out0, g_words[g_at], w0, w1, w2, w3);
            out1 = products(out1, g_words[g_at + 8u], w0, w1, w2, w3);
            out2 = products(out2, g_words[g_at + 16u], w0, w1, w2, w3);
            out3 = products(out3, g_words[g_at + 24u], w0, w1, w2, w3);
            out4 = products(out4, g_words[g_at + 32u], w0, w1, w2, w3);
            out5 = products(out5, g_words[g_at + 40u], w0, w1, w2, w3);
            out6 = products(out6, g_words[g_at + 48u], w0, w1, w2, w3);
            out7 = products(out7, g_words[g_at + 56u], w0, w1, w2, w3);
        }
        workgroupBarrier();
    }
    let out_token = first_token + token;
    let column = first_block * 32u + column_word * 4u;
    store4(out_token, column, out0);
    store4(out_token + 8u, column, out1);
    store4(out_token + 16u, column, out2);
    store4(out_token + 24u, column, out3);
    store4(out_token + 32u, column, out4);
    store4(out_token + 40u, column, out5);
    store4(out_token + 48u, column, out6);
    store4(out_token + 56u, column, out7);
}
