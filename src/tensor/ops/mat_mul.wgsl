// A workgroup computes a tile of 64 tokens × 64 rows: 256 invocations 4 tokens × 4 rows each, or, with EIGHT, 128 invocations
// 8 × 4 each. Per step, a block of 32 columns of both operands stands in workgroup memory, as words of four columns ordered so
// that neighbours in a tile are neighbours in memory.
#import "weight"

struct Params { rows: u32, columns: u32, blocks: u32, tokens: u32 }

@group(0) @binding(20) var<uniform> params: Params;

#import "activations"
#import "epilogue"

const TILE = 64u;
#ifdef EIGHT
const INVOCATIONS = 128u;
// From one of an invocation's tokens to the next.
const NEXT = 8u;
#else
const INVOCATIONS = 256u;
const NEXT = 16u;
#endif

// Together all of the 16 KiB that every WebGPU device has.
var<workgroup> x_words: array<vec4<f32>, 8u * TILE>;
var<workgroup> w_words: array<vec4<f32>, 8u * TILE>;

// Where word `word` of a row or token of the tile stands. What is stored at once, or read at once, lies in all banks.
fn place(word: u32, item: u32) -> u32 {
    return word * TILE + (item ^ word);
}

fn store_weights(word: u32, row: u32, first: vec4<f32>, second: vec4<f32>) {
    w_words[place(word, row)] = first;
    w_words[place(word + 1u, row)] = second;
}

// The columns of one word, a token's by four rows'.
fn products(sum: vec4<f32>, x: vec4<f32>, w0: vec4<f32>, w1: vec4<f32>, w2: vec4<f32>, w3: vec4<f32>) -> vec4<f32> {
    return sum
        + x.x * vec4<f32>(w0.x, w1.x, w2.x, w3.x)
        + x.y * vec4<f32>(w0.y, w1.y, w2.y, w3.y)
        + x.z * vec4<f32>(w0.z, w1.z, w2.z, w3.z)
        + x.w * vec4<f32>(w0.w, w1.w, w2.w, w3.w);
}

fn store4(token: u32, row: u32, values: vec4<f32>) {
    store(token, row, values.x);
    store(token, row + 16u, values.y);
    store(token, row + 32u, values.z);
    store(token, row + 48u, values.w);
}

@compute @workgroup_size(INVOCATIONS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    // The tokens' tiles run fastest: those that share weights run at the same time.
    let first_token = group.x * TILE;
    let first_row = group.y * TILE;
    // 32 neighbouring invocations take 8 rows × 4 tokens, so that they read few words at once.
    let row = (local & 7u) | ((local >> 2u) & 8u);
    let token = ((local >> 3u) & 3u) | ((local >> 6u) << 2u);

    // What this invocation brings: one word of some tokens, and some words of a row. Rows and tokens past the end repeat the
    // last one; only `store` leaves them out.
    let x_word = local % 8u;
    let w_row = local % TILE;
    let w_part = local / TILE;
    let w_start = min(first_row + w_row, params.rows - 1u) * params.blocks;

    var out0 = vec4<f32>(0.0);
    var out1 = vec4<f32>(0.0);
    var out2 = vec4<f32>(0.0);
    var out3 = vec4<f32>(0.0);
#ifdef EIGHT
    var out4 = vec4<f32>(0.0);
    var out5 = vec4<f32>(0.0);
    var out6 = vec4<f32>(0.0);
    var out7 = vec4<f32>(0.0);
#endif
    for (var block = 0u; block < params.blocks; block++) {
        for (var x_token = local / 8u; x_token < TILE; x_token += INVOCATIONS / 8u) {
            let source = min(first_token + x_token, params.tokens - 1u);
            x_words[place(x_word, x_token)] = load_four_activations(source, block, x_word);
        }
        let w = load_block(w_start + block);
#ifdef EIGHT
        if w_part == 0u {
            store_weights(0u, w_row, w.v0, w.v1);
            store_weights(2u, w_row, w.v2, w.v3);
        } else {
            store_weights(4u, w_row, w.v4, w.v5);
            store_weights(6u, w_row, w.v6, w.v7);
        }
#else
        switch w_part {
            case 0u: { store_weights(0u, w_row, w.v0, w.v1); }
            case 1u: { store_weights(2u, w_row, w.v2, w.v3); }
            case 2u: { store_weights(4u, w_row, w.v4, w.v5); }
            default: { store_weights(6u, w_row, w.v6, w.v7); }
        }
#endif
        workgroupBarrier();
        for (var word = 0u; word < 8u; word++) {
            let w_at = place(word, row);
            let w0 = w_words[w_at];
            let w1 = w_words[w_at + 16u];
            let w2 = w_words[w_at + 32u];
            let w3 = w_words[w_at + 48u];
            let x_at = place(word, token);
            out0 = products(out0, x_words[x_at], w0, w1, w2, w3);
            out1 = products(out1, x_words[x_at + NEXT], w0, w1, w2, w3);
            out2 = products(out2, x_words[x_at + 2u * NEXT], w0, w1, w2, w3);
            out3 = products(out3, x_words[x_at + 3u * NEXT], w0, w1, w2, w3);
#ifdef EIGHT
            out4 = products(out4, x_words[x_at + 4u * NEXT], w0, w1, w2, w3);
            out5 = products(out5, x_words[x_at + 5u * NEXT], w0, w1, w2, w3);
            out6 = products(out6, x_words[x_at + 6u * NEXT], w0, w1, w2, w3);
            out7 = products(out7, x_words[x_at + 7u * NEXT], w0, w1, w2, w3);
#endif
        }
        workgroupBarrier();
    }
    store4(first_token + token, first_row + row, out0);
    store4(first_token + token + NEXT, first_row + row, out1);
    store4(first_token + token + 2u * NEXT, first_row + row, out2);
    store4(first_token + token + 3u * NEXT, first_row + row, out3);
#ifdef EIGHT
    store4(first_token + token + 4u * NEXT, first_row + row, out4);
    store4(first_token + token + 5u * NEXT, first_row + row, out5);
    store4(first_token + token + 6u * NEXT, first_row + row, out6);
    store4(first_token + token + 7u * NEXT, first_row + row, out7);
#endif
}
