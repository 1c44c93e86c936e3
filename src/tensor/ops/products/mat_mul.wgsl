// A workgroup of 128 invocations computes a tile of 64 tokens × 64 rows, each invocation 8 tokens × 4 rows of it. Per step, a
// block of 32 columns of both operands is in workgroup memory, as words of four columns ordered so that neighbours in a
// tile are neighbours in memory.
#import "weight"

struct Params { rows: u32, columns: u32, blocks: u32, tokens: u32 }

@group(0) @binding(20) var<uniform> params: Params;

#import "activations"
#import "epilogue"

const TILE = 64u;

// Together they use all of the 16 KiB that every WebGPU device has.
var<workgroup> x_words: array<vec4<f32>, 8u * TILE>;
var<workgroup> w_words: array<vec4<f32>, 8u * TILE>;

// The place of word `word` of a row or token of the tile. Words stored or read at once are in different banks.
fn place(word: u32, item: u32) -> u32 {
    return word * TILE + (item ^ word);
}

fn store_weights(word: u32, row: u32, first: vec4<f32>, second: vec4<f32>) {
    w_words[place(word, row)] = first;
    w_words[place(word + 1u, row)] = second;
}

// The columns of one word, of a token times four rows.
fn products(sum: vec4<f32>, x: vec4<f32>, w0: vec4<f32>, w1: vec4<f32>, w2: vec4<f32>, w3: vec4<f32>) -> vec4<f32> {
    var result = fma(vec4<f32>(x.x), vec4<f32>(w0.x, w1.x, w2.x, w3.x), sum);
    result = fma(vec4<f32>(x.y), vec4<f32>(w0.y, w1.y, w2.y, w3.y), result);
    result = fma(vec4<f32>(x.z), vec4<f32>(w0.z, w1.z, w2.z, w3.z), result);
    return fma(vec4<f32>(x.w), vec4<f32>(w0.w, w1.w, w2.w, w3.w), result);
}

fn store4(token: u32, row: u32, values: vec4<f32>) {
    store(token, row, values.x);
    store(token, row + 16u, values.y);
    store(token, row + 32u, values.z);
    store(token, row + 48u, values.w);
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    // Tiles of tokens are the fastest index: those that share weights run at the same time.
    let first_token = group.x * TILE;
    let first_row = group.y * TILE;
    // 32 neighbouring invocations take 8 rows × 4 tokens, so that they read few words at once.
    let row = (local & 7u) | ((local >> 2u) & 8u);
    let token = ((local >> 3u) & 3u) | ((local >> 6u) << 2u);

    // This invocation loads one word of some tokens, and some words of a row. Rows and tokens past the end repeat the last one;
    // only `store` leaves them out.
    let x_word = local % 8u;
    let w_row = local % TILE;
    let w_start = min(first_row + w_row, params.rows - 1u) * params.blocks;

    var out0 = vec4<f32>(0.0);
    var out1 = vec4<f32>(0.0);
    var out2 = vec4<f32>(0.0);
    var out3 = vec4<f32>(0.0);
    var out4 = vec4<f32>(0.0);
    var out5 = vec4<f32>(0.0);
    var out6 = vec4<f32>(0.0);
    var out7 = vec4<f32>(0.0);
    for (var block = 0u; block < params.blocks; block++) {
        for (var x_token = local / 8u; x_token < TILE; x_token += 16u) {
            let source = min(first_token + x_token, params.tokens - 1u);
            x_words[place(x_word, x_token)] = load_four_activations(source, block, x_word);
        }
        let w = load_block(w_start + block);
        if local < TILE {
            store_weights(0u, w_row, w.v0, w.v1);
            store_weights(2u, w_row, w.v2, w.v3);
        } else {
            store_weights(4u, w_row, w.v4, w.v5);
            store_weights(6u, w_row, w.v6, w.v7);
        }
        workgroupBarrier();
        for (var word = 0u; word < 8u; word++) {
            let w_at = place(word, row);
            let w0 = w_words[w_at];
            let w1 = w_words[w_at + 16u];
            let w2 = w_words[w_at + 32u];
            let w3 = w_words[w_at + 48u];
            let x_at = place(word, token);
            out0 = products(out0, x_words[x_at], w0, w1, w2, w3);
            out1 = products(out1, x_words[x_at + 8u], w0, w1, w2, w3);
            out2 = products(out2, x_words[x_at + 16u], w0, w1, w2, w3);
            out3 = products(out3, x_words[x_at + 24u], w0, w1, w2, w3);
            out4 = products(out4, x_words[x_at + 32u], w0, w1, w2, w3);
            out5 = products(out5, x_words[x_at + 40u], w0, w1, w2, w3);
            out6 = products(out6, x_words[x_at + 48u], w0, w1, w2, w3);
            out7 = products(out7, x_words[x_at + 56u], w0, w1, w2, w3);
        }
        workgroupBarrier();
    }
    store4(first_token + token, first_row + row, out0);
    store4(first_token + token + 8u, first_row + row, out1);
    store4(first_token + token + 16u, first_row + row, out2);
    store4(first_token + token + 24u, first_row + row, out3);
    store4(first_token + token + 32u, first_row + row, out4);
    store4(first_token + token + 40u, first_row + row, out5);
    store4(first_token + token + 48u, first_row + row, out6);
    store4(first_token + token + 56u, first_row + row, out7);
}
