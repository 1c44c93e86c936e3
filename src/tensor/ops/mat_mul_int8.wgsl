// A workgroup of 256 invocations computes a tile of 64 tokens × 64 rows, each invocation 4 × 4 of it. Per step, STEP blocks of
// 32 columns of both operands stand in workgroup memory as words of 16 int8, ordered so that neighbours in a tile are
// neighbours in memory. While one step is computed, the next is on its way in registers; with two BUFFERS it lands beside the
// first, and one barrier a step is enough.
#import "weight"
#import "int8_block"

struct Params { rows: u32, blocks: u32, tokens: u32 }

@group(0) @binding(0) var<storage, read> quants: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> scales: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "epilogue"

const TILE = 64u;
const STEP = 2u;
// From one word of 16 columns to the next, for the same row. The surplus spreads what is stored at once over all banks.
const STRIDE = TILE + 2u;
// Words and scales of a step, of one operand.
const WORDS = 2u * STEP * STRIDE;
const SCALES = STEP * TILE;
// Scales, and offsets, that a block of weights has.
#ifdef HALVES
const PARTS = 2u;
#else
const PARTS = 1u;
#endif

var<workgroup> x_words: array<vec4<u32>, BUFFERS * WORDS>;
var<workgroup> w_words: array<vec4<u32>, BUFFERS * WORDS>;
var<workgroup> x_scales: array<f32, BUFFERS * SCALES>;
var<workgroup> w_scales: array<f32, BUFFERS * SCALES * PARTS>;
#ifdef OFFSETS
// The sum of the int8 of each word, which offsets are multiplied with.
var<workgroup> x_sums: array<f32, BUFFERS * SCALES * 2u>;
var<workgroup> w_offsets: array<f32, BUFFERS * SCALES * PARTS>;

fn sum_int8(word: vec4<u32>) -> f32 {
    let ones = 0x01010101u;
    return f32(dot_int8(word.x, ones) + dot_int8(word.y, ones) + dot_int8(word.z, ones) + dot_int8(word.w, ones));
}
#endif

// What one invocation brings of a step: a word of a token, and the lower half of them a weight, the upper half a scale.
struct Load { x: vec4<u32>, x_scale: f32, w: Int8Raw }

// Rows, tokens and blocks past the end repeat the last one; `store` leaves out rows and tokens, scales of zero the blocks.
fn load_step(first_block: u32, first_token: u32, first_row: u32, local: u32) -> Load {
    var load: Load;
    let last_block = params.blocks - 1u;
    let word = local % (2u * STEP);
    let token = min(first_token + local / (2u * STEP), params.tokens - 1u);
    load.x = quants[(token * params.blocks + min(first_block + word / 2u, last_block)) * 2u + word % 2u];
    let item = local % SCALES;
    let block = first_block + item % STEP;
    if local < SCALES {
        let row = min(first_row + item / STEP, params.rows - 1u);
        load.w = load_int8_raw(row * params.blocks + min(block, last_block));
    } else {
        let scale = scales[min(first_token + item / STEP, params.tokens - 1u) * params.blocks + min(block, last_block)];
        load.x_scale = select(0.0, scale, block <= last_block);
    }
    return load;
}

fn store_step(load: Load, buffer: u32, local: u32) {
    x_words[buffer * WORDS + (local % (2u * STEP)) * STRIDE + local / (2u * STEP)] = load.x;
#ifdef OFFSETS
    x_sums[buffer * SCALES * 2u + (local % (2u * STEP)) * TILE + local / (2u * STEP)] = sum_int8(load.x);
#endif
    let item = local % SCALES;
    if local < SCALES {
        let block = unpack_int8(load.w);
        let at = buffer * WORDS + (item % STEP) * 2u * STRIDE + item / STEP;
        w_words[at] = block.low;
        w_words[at + STRIDE] = block.high;
        let scale_at = (buffer * SCALES + (item % STEP) * TILE) * PARTS + item / STEP;
        w_scales[scale_at] = block.scales.x;
#ifdef HALVES
        w_scales[scale_at + TILE] = block.scales.y;
#endif
#ifdef OFFSETS
        w_offsets[scale_at] = block.offsets.x;
#ifdef HALVES
        w_offsets[scale_at + TILE] = block.offsets.y;
#endif
#endif
    } else {
        x_scales[buffer * SCALES + (item % STEP) * TILE + item / STEP] = load.x_scale;
    }
}

// Sums start at the bits of the f32 1.5 · 2^23, whose last bit counts ones: so a sum below 2^22 is turned into an f32 by a
// subtraction, where a conversion would take four times as long.
const SUM_START = 0x4b400000i;

fn sums(bits: vec4<i32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(bits) - vec4<f32>(12582912.0);
}

// Those of the four rows of an invocation.
fn four_scales(at: u32) -> vec4<f32> {
    return vec4<f32>(w_scales[at], w_scales[at + 16u], w_scales[at + 32u], w_scales[at + 48u]);
}

#ifdef OFFSETS
fn four_offsets(at: u32) -> vec4<f32> {
    return vec4<f32>(w_offsets[at], w_offsets[at + 16u], w_offsets[at + 32u], w_offsets[at + 48u]);
}
#endif

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
    store(token, row + 16u, values.y);
    store(token, row + 32u, values.z);
    store(token, row + 48u, values.w);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    // The tokens' tiles run fastest: those that share weights run at the same time.
    let first_token = group.x * TILE;
    let first_row = group.y * TILE;
    // 32 neighbouring invocations take 8 rows × 4 tokens, so that they read few words at once.
    let row = (local & 7u) | ((local >> 2u) & 8u);
    let token = ((local >> 3u) & 3u) | ((local >> 6u) << 2u);

    var out0 = vec4<f32>(0.0);
    var out1 = vec4<f32>(0.0);
    var out2 = vec4<f32>(0.0);
    var out3 = vec4<f32>(0.0);

    store_step(load_step(0u, first_token, first_row, local), 0u, local);
    workgroupBarrier();
    var buffer = 0u;
    for (var block = 0u; block < params.blocks; block += STEP) {
        let next = load_step(block + STEP, first_token, first_row, local);
        for (var k = 0u; k < STEP; k++) {
            // What is to be multiplied with the scales of the activations.
            var part0 = vec4<f32>(0.0);
            var part1 = vec4<f32>(0.0);
            var part2 = vec4<f32>(0.0);
            var part3 = vec4<f32>(0.0);
            let scales_at = (buffer * SCALES + k * TILE) * PARTS + row;
            var sum0 = vec4<i32>(SUM_START);
            var sum1 = vec4<i32>(SUM_START);
            var sum2 = vec4<i32>(SUM_START);
            var sum3 = vec4<i32>(SUM_START);
            for (var word = 0u; word < 2u; word++) {
                let w_at = buffer * WORDS + (k * 2u + word) * STRIDE + row;
                let w0 = w_words[w_at];
                let w1 = w_words[w_at + 16u];
                let w2 = w_words[w_at + 32u];
                let w3 = w_words[w_at + 48u];
                let x_at = buffer * WORDS + (k * 2u + word) * STRIDE + token;
                sum0 = dots(sum0, x_words[x_at], w0, w1, w2, w3);
                sum1 = dots(sum1, x_words[x_at + 16u], w0, w1, w2, w3);
                sum2 = dots(sum2, x_words[x_at + 32u], w0, w1, w2, w3);
                sum3 = dots(sum3, x_words[x_at + 48u], w0, w1, w2, w3);
#ifdef HALVES
                let w_scale = four_scales(scales_at + word * TILE);
                part0 += sums(sum0) * w_scale;
                part1 += sums(sum1) * w_scale;
                part2 += sums(sum2) * w_scale;
                part3 += sums(sum3) * w_scale;
                sum0 = vec4<i32>(SUM_START);
                sum1 = vec4<i32>(SUM_START);
                sum2 = vec4<i32>(SUM_START);
                sum3 = vec4<i32>(SUM_START);
#ifdef OFFSETS
                let w_offset = four_offsets(scales_at + word * TILE);
                let sum_at = buffer * SCALES * 2u + (k * 2u + word) * TILE + token;
                part0 -= x_sums[sum_at] * w_offset;
                part1 -= x_sums[sum_at + 16u] * w_offset;
                part2 -= x_sums[sum_at + 32u] * w_offset;
                part3 -= x_sums[sum_at + 48u] * w_offset;
#endif
#endif
            }
#ifndef HALVES
            let w_scale = four_scales(scales_at);
            part0 = sums(sum0) * w_scale;
            part1 = sums(sum1) * w_scale;
            part2 = sums(sum2) * w_scale;
            part3 = sums(sum3) * w_scale;
#ifdef OFFSETS
            let w_offset = four_offsets(scales_at);
            let sum_at = buffer * SCALES * 2u + k * 2u * TILE + token;
            part0 -= (x_sums[sum_at] + x_sums[sum_at + TILE]) * w_offset;
            part1 -= (x_sums[sum_at + 16u] + x_sums[sum_at + TILE + 16u]) * w_offset;
            part2 -= (x_sums[sum_at + 32u] + x_sums[sum_at + TILE + 32u]) * w_offset;
            part3 -= (x_sums[sum_at + 48u] + x_sums[sum_at + TILE + 48u]) * w_offset;
#endif
#endif
            let x_at = buffer * SCALES + k * TILE + token;
            out0 += part0 * x_scales[x_at];
            out1 += part1 * x_scales[x_at + 16u];
            out2 += part2 * x_scales[x_at + 32u];
            out3 += part3 * x_scales[x_at + 48u];
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
}
