// A workgroup of 4 · ROWS invocations computes a tile of TOKENS (64 or, with TALL, 128) × ROWS (32 or 64), each invocation a
// sixteenth of the tokens by four rows. Per step, STEP blocks of 32 columns of both operands stand in workgroup memory as
// words of 16 int8, ordered so that neighbours in a tile are neighbours in memory. While one step is computed, the next is on
// its way in registers; with two BUFFERS it lands beside the first, and one barrier a step is enough.
#import "weight"
#import "int8_block"

struct Params { rows: u32, blocks: u32, tokens: u32 }

@group(0) @binding(0) var<storage, read> quants: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> scales: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "epilogue"

const INVOCATIONS = 4u * ROWS;
// From one of an invocation's rows to the next.
const NEXT = ROWS / 4u;
// From one word of 16 columns to the next, for the same row. The surplus spreads what is stored at once over all banks.
const X_STRIDE = TOKENS + 4u / STEP;
const W_STRIDE = ROWS + 4u / STEP;
// Words and scales of a step.
const X_WORDS = 2u * STEP * X_STRIDE;
const W_WORDS = 2u * STEP * W_STRIDE;
const X_SCALES = STEP * TOKENS;
const W_SCALES = STEP * ROWS;
// The invocations that bring them: words of activations from 0 on, scales of activations to the end, and weights in between
// where there is room. With X_TWICE, each brings a word of two tokens.
#ifdef X_TWICE
const X_LOADERS = STEP * TOKENS;
#else
const X_LOADERS = 2u * STEP * TOKENS;
#endif

var<workgroup> x_words: array<vec4<u32>, BUFFERS * X_WORDS>;
var<workgroup> w_words: array<vec4<u32>, BUFFERS * W_WORDS>;
var<workgroup> x_scales: array<f32, BUFFERS * X_SCALES>;
var<workgroup> w_scales: array<f32, BUFFERS * W_SCALES>;

// What one invocation brings of a step.
struct Load {
    x: vec4<u32>,
#ifdef X_TWICE
    x_second: vec4<u32>,
#endif
    x_scale: f32,
    w: Int8Raw,
}

fn load_x(first_block: u32, token: u32, word: u32) -> vec4<u32> {
    let block = min(first_block + word / 2u, params.blocks - 1u);
    return quants[(min(token, params.tokens - 1u) * params.blocks + block) * 2u + word % 2u];
}

// Rows, tokens and blocks past the end repeat the last one; `store` leaves out rows and tokens, scales of zero the blocks.
fn load_step(first_block: u32, first_token: u32, first_row: u32, local: u32) -> Load {
    var load: Load;
    let last_block = params.blocks - 1u;
    if local < X_LOADERS {
        let token = first_token + local / (2u * STEP);
        load.x = load_x(first_block, token, local % (2u * STEP));
#ifdef X_TWICE
        load.x_second = load_x(first_block, token + TOKENS / 2u, local % (2u * STEP));
#endif
    }
    if local >= INVOCATIONS - X_SCALES {
        let item = local - (INVOCATIONS - X_SCALES);
        let token = min(first_token + item / STEP, params.tokens - 1u);
        let block = first_block + item % STEP;
        let scale = scales[token * params.blocks + min(block, last_block)];
        load.x_scale = select(0.0, scale, block <= last_block);
    }
    if local >= FIRST_WEIGHT && local < FIRST_WEIGHT + W_SCALES {
        let item = local - FIRST_WEIGHT;
        let row = min(first_row + item / STEP, params.rows - 1u);
        load.w = load_int8_raw(row * params.blocks + min(first_block + item % STEP, last_block));
    }
    return load;
}

fn store_step(load: Load, buffer: u32, local: u32) {
    if local < X_LOADERS {
        let at = buffer * X_WORDS + (local % (2u * STEP)) * X_STRIDE + local / (2u * STEP);
        x_words[at] = load.x;
#ifdef X_TWICE
        x_words[at + TOKENS / 2u] = load.x_second;
#endif
    }
    if local >= INVOCATIONS - X_SCALES {
        let item = local - (INVOCATIONS - X_SCALES);
        x_scales[buffer * X_SCALES + (item % STEP) * TOKENS + item / STEP] = load.x_scale;
    }
    if local >= FIRST_WEIGHT && local < FIRST_WEIGHT + W_SCALES {
        let item = local - FIRST_WEIGHT;
        let block = unpack_int8(load.w);
        let at = buffer * W_WORDS + (item % STEP) * 2u * W_STRIDE + item / STEP;
        w_words[at] = block.low;
        w_words[at + W_STRIDE] = block.high;
        w_scales[buffer * W_SCALES + (item % STEP) * ROWS + item / STEP] = block.scale;
    }
}

// Sums start at the bits of the f32 1.5 · 2^23, whose last bit counts ones: so a sum below 2^22 is turned into an f32 by a
// subtraction, where a conversion would take four times as long.
const SUM_START = 0x4b400000i;

fn sums(bits: vec4<i32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(bits) - vec4<f32>(12582912.0);
}

// Adds the products of 16 columns, a token's by four rows'.
fn dots(
    sum: vec4<i32>, x: vec4<u32>, w0: vec4<u32>, w1: vec4<u32>, w2: vec4<u32>, w3: vec4<u32>,
) -> vec4<i32> {
    return sum
        + vec4<i32>(dot_int8(x.x, w0.x), dot_int8(x.x, w1.x), dot_int8(x.x, w2.x), dot_int8(x.x, w3.x))
        + vec4<i32>(dot_int8(x.y, w0.y), dot_int8(x.y, w1.y), dot_int8(x.y, w2.y), dot_int8(x.y, w3.y))
        + vec4<i32>(dot_int8(x.z, w0.z), dot_int8(x.z, w1.z), dot_int8(x.z, w2.z), dot_int8(x.z, w3.z))
        + vec4<i32>(dot_int8(x.w, w0.w), dot_int8(x.w, w1.w), dot_int8(x.w, w2.w), dot_int8(x.w, w3.w));
}

fn store4(token: u32, row: u32, values: vec4<f32>) {
    store(token, row, values.x);
    store(token, row + NEXT, values.y);
    store(token, row + 2u * NEXT, values.z);
    store(token, row + 3u * NEXT, values.w);
}

@compute @workgroup_size(INVOCATIONS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    // The tokens' tiles run fastest: those that share weights run at the same time.
    let first_token = group.x * TOKENS;
    let first_row = group.y * ROWS;
    // 32 neighbouring invocations take 8 rows × 4 tokens, so that they read few words at once.
    let warp = local / 32u;
    let row = (local & 7u) + 8u * (warp % (NEXT / 8u));
    let token = ((local >> 3u) & 3u) + 4u * (warp / (NEXT / 8u));

    var out0 = vec4<f32>(0.0);
    var out1 = vec4<f32>(0.0);
    var out2 = vec4<f32>(0.0);
    var out3 = vec4<f32>(0.0);
#ifdef TALL
    var out4 = vec4<f32>(0.0);
    var out5 = vec4<f32>(0.0);
    var out6 = vec4<f32>(0.0);
    var out7 = vec4<f32>(0.0);
#endif

    store_step(load_step(0u, first_token, first_row, local), 0u, local);
    workgroupBarrier();
    var buffer = 0u;
    for (var block = 0u; block < params.blocks; block += STEP) {
        let next = load_step(block + STEP, first_token, first_row, local);
        for (var k = 0u; k < STEP; k++) {
            var sum0 = vec4<i32>(SUM_START);
            var sum1 = vec4<i32>(SUM_START);
            var sum2 = vec4<i32>(SUM_START);
            var sum3 = vec4<i32>(SUM_START);
#ifdef TALL
            var sum4 = vec4<i32>(SUM_START);
            var sum5 = vec4<i32>(SUM_START);
            var sum6 = vec4<i32>(SUM_START);
            var sum7 = vec4<i32>(SUM_START);
#endif
            for (var word = 0u; word < 2u; word++) {
                let w_at = buffer * W_WORDS + (k * 2u + word) * W_STRIDE + row;
                let w0 = w_words[w_at];
                let w1 = w_words[w_at + NEXT];
                let w2 = w_words[w_at + 2u * NEXT];
                let w3 = w_words[w_at + 3u * NEXT];
                let x_at = buffer * X_WORDS + (k * 2u + word) * X_STRIDE + token;
                sum0 = dots(sum0, x_words[x_at], w0, w1, w2, w3);
                sum1 = dots(sum1, x_words[x_at + 16u], w0, w1, w2, w3);
                sum2 = dots(sum2, x_words[x_at + 32u], w0, w1, w2, w3);
                sum3 = dots(sum3, x_words[x_at + 48u], w0, w1, w2, w3);
#ifdef TALL
                sum4 = dots(sum4, x_words[x_at + 64u], w0, w1, w2, w3);
                sum5 = dots(sum5, x_words[x_at + 80u], w0, w1, w2, w3);
                sum6 = dots(sum6, x_words[x_at + 96u], w0, w1, w2, w3);
                sum7 = dots(sum7, x_words[x_at + 112u], w0, w1, w2, w3);
#endif
            }
            let w_at = buffer * W_SCALES + k * ROWS + row;
            let w_scale = vec4<f32>(w_scales[w_at], w_scales[w_at + NEXT], w_scales[w_at + 2u * NEXT], w_scales[w_at + 3u * NEXT]);
            let x_at = buffer * X_SCALES + k * TOKENS + token;
            out0 += sums(sum0) * (x_scales[x_at] * w_scale);
            out1 += sums(sum1) * (x_scales[x_at + 16u] * w_scale);
            out2 += sums(sum2) * (x_scales[x_at + 32u] * w_scale);
            out3 += sums(sum3) * (x_scales[x_at + 48u] * w_scale);
#ifdef TALL
            out4 += sums(sum4) * (x_scales[x_at + 64u] * w_scale);
            out5 += sums(sum5) * (x_scales[x_at + 80u] * w_scale);
            out6 += sums(sum6) * (x_scales[x_at + 96u] * w_scale);
            out7 += sums(sum7) * (x_scales[x_at + 112u] * w_scale);
#endif
        }
        // One buffer must be read by all before it is filled again; of two, the other one was, before the last barrier.
        if BUFFERS == 1u {
            workgroupBarrier();
        } else {
            buffer = 1u - buffer;
        }
        store_step(next, buffer, local);
        workgroupBarrier();
    }
    store4(first_token + token, first_row + row, out0);
    store4(first_token + token + 16u, first_row + row, out1);
    store4(first_token + token + 32u, first_row + row, out2);
    store4(first_token + token + 48u, first_row + row, out3);
#ifdef TALL
    store4(first_token + token + 64u, first_row + row, out4);
    store4(first_token + token + 80u, first_row + row, out5);
    store4(first_token + token + 96u, first_row + row, out6);
    store4(first_token + token + 112u, first_row + row, out7);
#endif
}
