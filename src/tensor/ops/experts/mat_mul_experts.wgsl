// A workgroup of 128 invocations computes a tile of 32 pairs of one expert × 64 rows, each invocation 4 pairs × 4 rows of it. Per step,
// a block of 32 columns of both operands is in workgroup memory, as words of four columns ordered so that neighbours in a
// tile are neighbours in memory.
#import "weight"

struct Params {
    rows: u32, columns: u32, blocks: u32,
    // Pairs of a token and one of its experts that share a row of x.
    pairs_per_row: u32,
    // The number of the weight's first expert, and the number of its experts.
    first: u32, experts_here: u32,
}

@group(0) @binding(1) var<storage, read> order: array<u32>;
@group(0) @binding(2) var<storage, read> tiles: array<vec4<u32>>;
#ifdef BIAS
// [experts, rows]
@group(0) @binding(BIAS_BINDING) var<storage, read> biases: array<f32>;
#endif
@group(0) @binding(OUT_BINDING) var<storage, read_write> out: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "activations"

const ROWS = 64u;

var<workgroup> x_words: array<vec4<f32>, 8u * TILE>;
var<workgroup> w_words: array<vec4<f32>, 8u * ROWS>;
var<workgroup> own_tile: vec4<u32>;

// The place of word `word` of a row or pair. Words stored or read at once are in different banks.
fn x_place(word: u32, item: u32) -> u32 {
    return word * TILE + (item ^ word);
}

fn w_place(word: u32, item: u32) -> u32 {
    return word * ROWS + (item ^ word);
}

fn store_weights(word: u32, row: u32, first: vec4<f32>, second: vec4<f32>) {
    w_words[w_place(word, row)] = first;
    w_words[w_place(word + 1u, row)] = second;
}

// The columns of one word, of a pair times four rows.
fn products(sum: vec4<f32>, x: vec4<f32>, w0: vec4<f32>, w1: vec4<f32>, w2: vec4<f32>, w3: vec4<f32>) -> vec4<f32> {
    var result = fma(vec4<f32>(x.x), vec4<f32>(w0.x, w1.x, w2.x, w3.x), sum);
    result = fma(vec4<f32>(x.y), vec4<f32>(w0.y, w1.y, w2.y, w3.y), result);
    result = fma(vec4<f32>(x.z), vec4<f32>(w0.z, w1.z, w2.z, w3.z), result);
    return fma(vec4<f32>(x.w), vec4<f32>(w0.w, w1.w, w2.w, w3.w), result);
}

fn store4(pair: u32, tile: vec4<u32>, row: u32, values: vec4<f32>) {
    if pair >= tile.z {
        return;
    }
    let start = order[tile.y + pair] * params.rows;
    for (var i = 0u; i < 4u; i++) {
        if row + i * 16u < params.rows {
#ifdef BIAS
            out[start + row + i * 16u] = values[i] + biases[tile.x * params.rows + row + i * 16u];
#else
            out[start + row + i * 16u] = values[i];
#endif
        }
    }
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    if local == 0u {
        own_tile = tiles[group.x];
    }
    let tile = workgroupUniformLoad(&own_tile);
    // An expert before this part wraps around to one far beyond it.
    let expert = tile.x - params.first;
    if tile.z == 0u || expert >= params.experts_here {
        return;
    }
    let first_row = group.y * ROWS;
    // 32 neighbouring invocations take 8 rows × 4 pairs, so that they read few words at once.
    let row = (local & 7u) | ((local >> 2u) & 8u);
    let pair = ((local >> 3u) & 3u) | ((local >> 6u) << 2u);

    // This invocation loads one word of two pairs, and some words of a row. Rows and pairs past the end repeat the last one; only
    // `store4` leaves them out.
    let x_word = local % 8u;
    let x_pair = local / 8u;
    let last = tile.z - 1u;
    let x_row0 = order[tile.y + min(x_pair, last)] / params.pairs_per_row;
    let x_row1 = order[tile.y + min(x_pair + 16u, last)] / params.pairs_per_row;
    let w_row = local % ROWS;
    let w_start = (expert * params.rows + min(first_row + w_row, params.rows - 1u)) * params.blocks;

    var out0 = vec4<f32>(0.0);
    var out1 = vec4<f32>(0.0);
    var out2 = vec4<f32>(0.0);
    var out3 = vec4<f32>(0.0);
    for (var block = 0u; block < params.blocks; block++) {
        x_words[x_place(x_word, x_pair)] = load_four_activations(x_row0, block, x_word);
        x_words[x_place(x_word, x_pair + 16u)] = load_four_activations(x_row1, block, x_word);
        let w = load_block(w_start + block);
        if local < ROWS {
            store_weights(0u, w_row, w.v0, w.v1);
            store_weights(2u, w_row, w.v2, w.v3);
        } else {
            store_weights(4u, w_row, w.v4, w.v5);
            store_weights(6u, w_row, w.v6, w.v7);
        }
        workgroupBarrier();
        for (var word = 0u; word < 8u; word++) {
            let w0 = w_words[w_place(word, row)];
            let w1 = w_words[w_place(word, row + 16u)];
            let w2 = w_words[w_place(word, row + 32u)];
            let w3 = w_words[w_place(word, row + 48u)];
            out0 = products(out0, x_words[x_place(word, pair)], w0, w1, w2, w3);
            out1 = products(out1, x_words[x_place(word, pair + 8u)], w0, w1, w2, w3);
            out2 = products(out2, x_words[x_place(word, pair + 16u)], w0, w1, w2, w3);
            out3 = products(out3, x_words[x_place(word, pair + 24u)], w0, w1, w2, w3);
        }
        workgroupBarrier();
    }
    store4(pair, tile, first_row + row, out0);
    store4(pair + 8u, tile, first_row + row, out1);
    store4(pair + 16u, tile, first_row + row, out2);
    store4(pair + 24u, tile, first_row + row, out3);
}
