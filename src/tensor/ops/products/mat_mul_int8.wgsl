// A workgroup of 128 invocations computes a tile of TOKENS tokens × 64 rows, each invocation 4 rows of 4 tokens, or of 8 (EIGHT).
// Per step, STEP blocks of 32 columns of both operands are in workgroup memory as words of 16 int8, ordered so that
// neighbours in a tile are neighbours in memory. While one step is computed, the next is on its way in registers; with two BUFFERS
// it lands beside the first, and one barrier a step is enough.
#import "weight"
#import "int8_block"

#ifdef EXPERTS
// Of a mixture of experts: a tile's tokens are pairs of a token and one of its experts, which is the same for all of them.
struct Params {
    rows: u32, blocks: u32,
    // Pairs that share a row of the activations.
    pairs_per_row: u32,
    // The number of the weight's first expert, and the number of its experts.
    first: u32, experts_here: u32,
}
#else
struct Params { rows: u32, blocks: u32, tokens: u32 }
#endif

@group(0) @binding(0) var<storage, read> quants: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> scales: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

#ifdef EXPERTS
@group(0) @binding(2) var<storage, read> order: array<u32>;
@group(0) @binding(3) var<storage, read> tiles: array<vec4<u32>>;
#ifdef BIAS
// [experts, rows]
@group(0) @binding(4) var<storage, read> biases: array<f32>;
#endif
@group(0) @binding(OUT_BINDING) var<storage, read_write> out: array<f32>;

// Expert, first place in the order, count.
var<workgroup> own_tile: vec4<u32>;
// The row of the activations whose words an invocation loads, and the one whose scales it loads.
var<private> word_row: u32;
var<private> scale_row: u32;
// The rows of the experts before this one.
var<private> rows_before: u32;

fn store(token: u32, row: u32, value: f32) {
    if token < own_tile.z && row < params.rows {
#ifdef BIAS
        out[order[own_tile.y + token] * params.rows + row] = value + biases[own_tile.x * params.rows + row];
#else
        out[order[own_tile.y + token] * params.rows + row] = value;
#endif
    }
}
#else
#import "epilogue"
#endif

const THREADS = 128u;
const ROWS = 64u;
// The distances between an invocation's rows, and between its tokens.
const ROW_STRIDE = 16u;
const TOKEN_STRIDE = 8u;
const STEP = 2u;
#ifdef EIGHT
const TOKENS = 64u;
#else
const TOKENS = 32u;
#endif
// From one word of 16 columns to the next, for the same token or row. The padding spreads words stored at once over all banks.
const X_STRIDE = TOKENS + 2u;
const W_STRIDE = ROWS + 2u;
// Words and scales of a step.
const X_WORDS = 2u * STEP * X_STRIDE;
const W_WORDS = 2u * STEP * W_STRIDE;
const X_SCALES = STEP * TOKENS;
const W_SCALES = STEP * ROWS;
// Scales, and offsets, of a block of weights.
#ifdef HALVES
const PARTS = 2u;
#else
const PARTS = 1u;
#endif

var<workgroup> x_words: array<vec4<u32>, BUFFERS * X_WORDS>;
var<workgroup> w_words: array<vec4<u32>, BUFFERS * W_WORDS>;
var<workgroup> x_scales: array<f32, BUFFERS * X_SCALES>;
var<workgroup> w_scales: array<f32, BUFFERS * W_SCALES * PARTS>;
#ifdef OFFSETS
// The sum of the int8 of each word, which is multiplied by offsets.
var<workgroup> x_sums: array<f32, BUFFERS * X_SCALES * 2u>;
var<workgroup> w_offsets: array<f32, BUFFERS * W_SCALES * PARTS>;

fn sum_int8(word: vec4<u32>) -> f32 {
    let ones = 0x01010101u;
    return f32(dot_int8(word.x, ones) + dot_int8(word.y, ones) + dot_int8(word.z, ones) + dot_int8(word.w, ones));
}
#endif

// One invocation's loads of a step: one word of a token, or two, a block of weights, and a token's scale of a block.
struct Load {
    x: vec4<u32>,
#ifdef EIGHT
    second_x: vec4<u32>,
#endif
    x_scale: f32,
    w: Int8Raw,
}

// Rows, tokens and blocks past the end repeat the last one; `store` leaves out rows and tokens, scales of zero the blocks.
fn load_x(item: u32, first_block: u32, first_token: u32) -> vec4<u32> {
    let word = item % (2u * STEP);
#ifdef EXPERTS
    let token = word_row;
#else
    let token = min(first_token + item / (2u * STEP), params.tokens - 1u);
#endif
    return quants[(token * params.blocks + min(first_block + word / 2u, params.blocks - 1u)) * 2u + word % 2u];
}

fn load_step(first_block: u32, first_token: u32, first_row: u32, local: u32) -> Load {
    var load: Load;
    load.x = load_x(local, first_block, first_token);
#ifdef EIGHT
    load.second_x = load_x(local + THREADS, first_block, first_token);
#endif
    let block = first_block + local % STEP;
    let last_block = params.blocks - 1u;
#ifdef EXPERTS
    let row = rows_before + min(first_row + local / STEP, params.rows - 1u);
    let token = scale_row;
#else
    let row = min(first_row + local / STEP, params.rows - 1u);
    let token = min(first_token + local / STEP, params.tokens - 1u);
#endif
    load.w = load_int8_raw(row * params.blocks + min(block, last_block));
    load.x_scale = select(0.0, scales[token * params.blocks + min(block, last_block)], block <= last_block);
    return load;
}

fn store_x(item: u32, buffer: u32, x: vec4<u32>) {
    let word = item % (2u * STEP);
    let token = item / (2u * STEP);
    x_words[buffer * X_WORDS + word * X_STRIDE + token] = x;
#ifdef OFFSETS
    x_sums[buffer * X_SCALES * 2u + word * TOKENS + token] = sum_int8(x);
#endif
}

fn store_step(load: Load, buffer: u32, local: u32) {
    store_x(local, buffer, load.x);
#ifdef EIGHT
    store_x(local + THREADS, buffer, load.second_x);
#endif
    let block = unpack_int8(load.w);
    let at = buffer * W_WORDS + (local % STEP) * 2u * W_STRIDE + local / STEP;
    w_words[at] = block.low;
    w_words[at + W_STRIDE] = block.high;
    let scale_at = (buffer * W_SCALES + (local % STEP) * ROWS) * PARTS + local / STEP;
    w_scales[scale_at] = block.scales.x;
#ifdef HALVES
    w_scales[scale_at + ROWS] = block.scales.y;
#endif
#ifdef OFFSETS
    w_offsets[scale_at] = block.offsets.x;
#ifdef HALVES
    w_offsets[scale_at + ROWS] = block.offsets.y;
#endif
#endif
    if local < X_SCALES {
        x_scales[buffer * X_SCALES + (local % STEP) * TOKENS + local / STEP] = load.x_scale;
    }
}

// For each of an invocation's tokens, a number for each of its four rows: sums of products of int8, and the same as floats. Named
// fields, because not every compiler keeps an array in registers.
struct Sums {
    t0: vec4<i32>, t1: vec4<i32>, t2: vec4<i32>, t3: vec4<i32>,
#ifdef EIGHT
    t4: vec4<i32>, t5: vec4<i32>, t6: vec4<i32>, t7: vec4<i32>,
#endif
}

struct Tile {
    t0: vec4<f32>, t1: vec4<f32>, t2: vec4<f32>, t3: vec4<f32>,
#ifdef EIGHT
    t4: vec4<f32>, t5: vec4<f32>, t6: vec4<f32>, t7: vec4<f32>,
#endif
}

// Sums start at the bits of the f32 1.5 · 2^23, whose last bit counts ones: so a sum below 2^22 is turned into an f32 by a
// subtraction, where a conversion would take four times as long.
fn no_sums() -> Sums {
    let start = vec4<i32>(0x4b400000i);
    var sums: Sums;
    sums.t0 = start;
    sums.t1 = start;
    sums.t2 = start;
    sums.t3 = start;
#ifdef EIGHT
    sums.t4 = start;
    sums.t5 = start;
    sums.t6 = start;
    sums.t7 = start;
#endif
    return sums;
}

fn as_float(bits: vec4<i32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(bits) - vec4<f32>(12582912.0);
}

// Adds the products of 16 columns, of a token times four rows.
fn dots(
    sum: vec4<i32>, x: vec4<u32>, w0: vec4<u32>, w1: vec4<u32>, w2: vec4<u32>, w3: vec4<u32>,
) -> vec4<i32> {
    return sum
        + vec4<i32>(dot_int8(x.x, w0.x), dot_int8(x.x, w1.x), dot_int8(x.x, w2.x), dot_int8(x.x, w3.x))
        + vec4<i32>(dot_int8(x.y, w0.y), dot_int8(x.y, w1.y), dot_int8(x.y, w2.y), dot_int8(x.y, w3.y))
        + vec4<i32>(dot_int8(x.z, w0.z), dot_int8(x.z, w1.z), dot_int8(x.z, w2.z), dot_int8(x.z, w3.z))
        + vec4<i32>(dot_int8(x.w, w0.w), dot_int8(x.w, w1.w), dot_int8(x.w, w2.w), dot_int8(x.w, w3.w));
}

// Adds the products of 16 columns, of all tokens times four rows.
fn add_word(sums: Sums, x_at: u32, w_at: u32) -> Sums {
    let w0 = w_words[w_at];
    let w1 = w_words[w_at + ROW_STRIDE];
    let w2 = w_words[w_at + 2u * ROW_STRIDE];
    let w3 = w_words[w_at + 3u * ROW_STRIDE];
    var more = sums;
    more.t0 = dots(more.t0, x_words[x_at], w0, w1, w2, w3);
    more.t1 = dots(more.t1, x_words[x_at + TOKEN_STRIDE], w0, w1, w2, w3);
    more.t2 = dots(more.t2, x_words[x_at + 2u * TOKEN_STRIDE], w0, w1, w2, w3);
    more.t3 = dots(more.t3, x_words[x_at + 3u * TOKEN_STRIDE], w0, w1, w2, w3);
#ifdef EIGHT
    more.t4 = dots(more.t4, x_words[x_at + 4u * TOKEN_STRIDE], w0, w1, w2, w3);
    more.t5 = dots(more.t5, x_words[x_at + 5u * TOKEN_STRIDE], w0, w1, w2, w3);
    more.t6 = dots(more.t6, x_words[x_at + 6u * TOKEN_STRIDE], w0, w1, w2, w3);
    more.t7 = dots(more.t7, x_words[x_at + 7u * TOKEN_STRIDE], w0, w1, w2, w3);
#endif
    return more;
}

// A scale, or an offset, of each of an invocation's four rows.
fn four_scales(at: u32) -> vec4<f32> {
    return vec4<f32>(
        w_scales[at], w_scales[at + ROW_STRIDE], w_scales[at + 2u * ROW_STRIDE], w_scales[at + 3u * ROW_STRIDE],
    );
}

#ifdef OFFSETS
fn four_offsets(at: u32) -> vec4<f32> {
    return vec4<f32>(
        w_offsets[at], w_offsets[at + ROW_STRIDE], w_offsets[at + 2u * ROW_STRIDE], w_offsets[at + 3u * ROW_STRIDE],
    );
}
#endif

// Adds the sums, times the scales of the rows, times those of the tokens, which start at `scale_at`.
fn add_scaled(tile: Tile, sums: Sums, w_scale: vec4<f32>, scale_at: u32) -> Tile {
    var more = tile;
    more.t0 += as_float(sums.t0) * (x_scales[scale_at] * w_scale);
    more.t1 += as_float(sums.t1) * (x_scales[scale_at + TOKEN_STRIDE] * w_scale);
    more.t2 += as_float(sums.t2) * (x_scales[scale_at + 2u * TOKEN_STRIDE] * w_scale);
    more.t3 += as_float(sums.t3) * (x_scales[scale_at + 3u * TOKEN_STRIDE] * w_scale);
#ifdef EIGHT
    more.t4 += as_float(sums.t4) * (x_scales[scale_at + 4u * TOKEN_STRIDE] * w_scale);
    more.t5 += as_float(sums.t5) * (x_scales[scale_at + 5u * TOKEN_STRIDE] * w_scale);
    more.t6 += as_float(sums.t6) * (x_scales[scale_at + 6u * TOKEN_STRIDE] * w_scale);
    more.t7 += as_float(sums.t7) * (x_scales[scale_at + 7u * TOKEN_STRIDE] * w_scale);
#endif
    return more;
}

#ifdef OFFSETS
// Subtracts the offsets of the rows, times the sums of the tokens' words, which start at `sum_at`, times the tokens' scales.
fn subtract_offsets(tile: Tile, w_offset: vec4<f32>, sum_at: u32, scale_at: u32) -> Tile {
    var less = tile;
    less.t0 -= x_sums[sum_at] * x_scales[scale_at] * w_offset;
    less.t1 -= x_sums[sum_at + TOKEN_STRIDE] * x_scales[scale_at + TOKEN_STRIDE] * w_offset;
    less.t2 -= x_sums[sum_at + 2u * TOKEN_STRIDE] * x_scales[scale_at + 2u * TOKEN_STRIDE] * w_offset;
    less.t3 -= x_sums[sum_at + 3u * TOKEN_STRIDE] * x_scales[scale_at + 3u * TOKEN_STRIDE] * w_offset;
#ifdef EIGHT
    less.t4 -= x_sums[sum_at + 4u * TOKEN_STRIDE] * x_scales[scale_at + 4u * TOKEN_STRIDE] * w_offset;
    less.t5 -= x_sums[sum_at + 5u * TOKEN_STRIDE] * x_scales[scale_at + 5u * TOKEN_STRIDE] * w_offset;
    less.t6 -= x_sums[sum_at + 6u * TOKEN_STRIDE] * x_scales[scale_at + 6u * TOKEN_STRIDE] * w_offset;
    less.t7 -= x_sums[sum_at + 7u * TOKEN_STRIDE] * x_scales[scale_at + 7u * TOKEN_STRIDE] * w_offset;
#endif
    return less;
}
#endif

fn store4(token: u32, row: u32, values: vec4<f32>) {
    store(token, row, values.x);
    store(token, row + ROW_STRIDE, values.y);
    store(token, row + 2u * ROW_STRIDE, values.z);
    store(token, row + 3u * ROW_STRIDE, values.w);
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    // Tiles of tokens are the fastest index: those that share weights run at the same time.
#ifdef EXPERTS
    if local == 0u {
        own_tile = tiles[group.x];
    }
    let pairs = workgroupUniformLoad(&own_tile);
    // An expert before this part wraps around to one far beyond it.
    let expert = pairs.x - params.first;
    if pairs.z == 0u || expert >= params.experts_here {
        return;
    }
    rows_before = expert * params.rows;
    // Pairs past the end repeat the last one.
    word_row = order[pairs.y + min(local / (2u * STEP), pairs.z - 1u)] / params.pairs_per_row;
    scale_row = order[pairs.y + min(local / STEP, pairs.z - 1u)] / params.pairs_per_row;
    let first_token = 0u;
#else
    let first_token = group.x * TOKENS;
#endif
    let first_row = group.y * ROWS;
    // 32 neighbouring invocations take 8 rows × 4 tokens, so that they read few words at once.
    let row = (local & 7u) | ((local >> 2u) & 8u);
    let token = ((local >> 3u) & 3u) | ((local >> 6u) << 2u);

    var tile: Tile;
    store_step(load_step(0u, first_token, first_row, local), 0u, local);
    workgroupBarrier();
    var buffer = 0u;
    for (var block = 0u; block < params.blocks; block += STEP) {
        let next = load_step(block + STEP, first_token, first_row, local);
        for (var k = 0u; k < STEP; k++) {
            let x_at = buffer * X_WORDS + k * 2u * X_STRIDE + token;
            let w_at = buffer * W_WORDS + k * 2u * W_STRIDE + row;
            let x_scale_at = buffer * X_SCALES + k * TOKENS + token;
            let w_scale_at = (buffer * W_SCALES + k * ROWS) * PARTS + row;
#ifdef HALVES
            tile = add_scaled(tile, add_word(no_sums(), x_at, w_at), four_scales(w_scale_at), x_scale_at);
            let high = add_word(no_sums(), x_at + X_STRIDE, w_at + W_STRIDE);
            tile = add_scaled(tile, high, four_scales(w_scale_at + ROWS), x_scale_at);
#else
            let sums = add_word(add_word(no_sums(), x_at, w_at), x_at + X_STRIDE, w_at + W_STRIDE);
            tile = add_scaled(tile, sums, four_scales(w_scale_at), x_scale_at);
#endif
#ifdef OFFSETS
            let x_sum_at = buffer * X_SCALES * 2u + k * 2u * TOKENS + token;
            tile = subtract_offsets(tile, four_offsets(w_scale_at), x_sum_at, x_scale_at);
            let high_offset_at = w_scale_at + (PARTS - 1u) * ROWS;
            tile = subtract_offsets(tile, four_offsets(high_offset_at), x_sum_at + TOKENS, x_scale_at);
#endif
        }
        // A single buffer must be read by all before it is filled again. With two, the other one was read before the last barrier.
        if BUFFERS == 1u {
            workgroupBarrier();
        } else {
            buffer = 1u - buffer;
        }
        store_step(next, buffer, local);
        workgroupBarrier();
    }
    store4(first_token + token, first_row + row, tile.t0);
    store4(first_token + token + TOKEN_STRIDE, first_row + row, tile.t1);
    store4(first_token + token + 2u * TOKEN_STRIDE, first_row + row, tile.t2);
    store4(first_token + token + 3u * TOKEN_STRIDE, first_row + row, tile.t3);
#ifdef EIGHT
    store4(first_token + token + 4u * TOKEN_STRIDE, first_row + row, tile.t4);
    store4(first_token + token + 5u * TOKEN_STRIDE, first_row + row, tile.t5);
    store4(first_token + token + 6u * TOKEN_STRIDE, first_row + row, tile.t6);
    store4(first_token + token + 7u * TOKEN_STRIDE, first_row + row, tile.t7);
#endif
}
