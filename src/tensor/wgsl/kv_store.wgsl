// Quantises keys and values for a cache of q8_0: 16 invocations put a pair each into workgroup memory, and after a barrier the first
// eight of them store a word each; the very first also stores the scale.
//
// The kernel declares `block_pairs`, an array of pairs in workgroup memory, and with KEYS or VALUES `k_cache` or `v_cache`.
#import "kv_cache"

const BLOCK_PAIRS = 16u;

// The scale as f16: the largest magnitude divided by 127.
fn block_scale(first_pair: u32) -> u32 {
    var largest = 0.0;
    for (var i = 0u; i < BLOCK_PAIRS; i++) {
        let pair = abs(block_pairs[first_pair + i]);
        largest = max(largest, max(pair.x, pair.y));
    }
    return pack2x16float(vec2<f32>(min(largest / 127.0, 65504.0), 0.0));
}

// Divides by the rounded scale, which readers use.
fn block_word(first_pair: u32, word: u32, scale: u32) -> u32 {
    let divisor = unpack2x16float(scale).x;
    let at = first_pair + 2u * word;
    let values = vec4<f32>(block_pairs[at], block_pairs[at + 1u]);
    var quants = vec4<i32>(0);
    if divisor > 0.0 {
        quants = vec4<i32>(clamp(round(values / divisor), vec4<f32>(-127.0), vec4<f32>(127.0)));
    }
    let bytes = vec4<u32>(quants) & vec4<u32>(255u);
    return bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u);
}

#ifdef KEYS
// `word` is below 8.
fn store_key_word(block: u32, first_pair: u32, word: u32) {
    let scale = block_scale(first_pair);
    let index = block * 8u + word;
    atomicStore(&k_cache[vector_word(index)], block_word(first_pair, word, scale));
    if word == 0u {
        let shift = block % 2u * 16u;
        atomicAnd(&k_cache[scales_word(index)], ~(65535u << shift));
        atomicOr(&k_cache[scales_word(index)], scale << shift);
    }
}
#endif

#ifdef VALUES
fn store_value_word(block: u32, first_pair: u32, word: u32) {
    let scale = block_scale(first_pair);
    let index = block * 8u + word;
    atomicStore(&v_cache[vector_word(index)], block_word(first_pair, word, scale));
    if word == 0u {
        let shift = block % 2u * 16u;
        atomicAnd(&v_cache[scales_word(index)], ~(65535u << shift));
        atomicOr(&v_cache[scales_word(index)], scale << shift);
    }
}
#endif
