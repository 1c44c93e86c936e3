// For software adapters, without workgroup memory: each invocation computes two rows of the weight for four tokens, so that
// each block of weights is unpacked once for four.
#import "weight"
#import "int8_block"

struct Params { rows: u32, blocks: u32, tokens: u32 }

@group(0) @binding(0) var<storage, read> quants: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> scales: array<f32>;
@group(0) @binding(20) var<uniform> params: Params;

#import "epilogue"

fn dot_words(a: vec4<u32>, b: vec4<u32>) -> i32 {
    return dot_int8(a.x, b.x) + dot_int8(a.y, b.y) + dot_int8(a.z, b.z) + dot_int8(a.w, b.w);
}

fn product(token: u32, block: u32, w0: Int8Weights, w1: Int8Weights) -> vec2<f32> {
    let at = token * params.blocks + block;
    let low = quants[at * 2u];
    let high = quants[at * 2u + 1u];
    let low_sums = vec2<i32>(dot_words(low, w0.low), dot_words(low, w1.low));
    let high_sums = vec2<i32>(dot_words(high, w0.high), dot_words(high, w1.high));
#ifdef HALVES
    var sums = vec2<f32>(low_sums) * vec2<f32>(w0.scales.x, w1.scales.x)
        + vec2<f32>(high_sums) * vec2<f32>(w0.scales.y, w1.scales.y);
#else
    var sums = vec2<f32>(low_sums + high_sums) * vec2<f32>(w0.scales.x, w1.scales.x);
#endif
#ifdef OFFSETS
    let ones = vec4<u32>(0x01010101u);
    sums -= f32(dot_words(low, ones)) * vec2<f32>(w0.offsets.x, w1.offsets.x)
        + f32(dot_words(high, ones)) * vec2<f32>(w0.offsets.y, w1.offsets.y);
#endif
    return sums * scales[at];
}

@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = (group.x * 32u + local) * 2u;
    let token = group.y * 4u;
    let tokens = min(4u, params.tokens - token);
    let last_row = params.rows - 1u;
    if row > last_row {
        return;
    }
    // A row past the end repeats the last one; only `store` leaves it out.
    let start0 = row * params.blocks;
    let start1 = min(row + 1u, last_row) * params.blocks;
    var sums: array<vec2<f32>, 4>;
    for (var block = 0u; block < params.blocks; block++) {
        let w0 = unpack_int8(load_int8_raw(start0 + block));
        let w1 = unpack_int8(load_int8_raw(start1 + block));
        for (var i = 0u; i < tokens; i++) {
            sums[i] += product(token + i, block, w0, w1);
        }
    }
    for (var i = 0u; i < tokens; i++) {
        store(token + i, row, sums[i].x);
        store(token + i, row + 1u, sums[i].y);
    }
}
