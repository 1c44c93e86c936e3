// Four keys or values at a time, by their index in the cache. The kernel binds `k_cache` and `v_cache` as arrays of
// CacheVector.
#import "kv_cache"

#ifdef CACHE_Q8_0
fn key_vector(index: u32) -> vec4<f32> {
    return scaled_vector(k_cache[vector_word(index)], k_cache[scales_word(index)], index);
}

fn value_vector(index: u32) -> vec4<f32> {
    return scaled_vector(v_cache[vector_word(index)], v_cache[scales_word(index)], index);
}
#else
fn key_vector(index: u32) -> vec4<f32> {
    return cached_vector(k_cache[index]);
}

fn value_vector(index: u32) -> vec4<f32> {
    return cached_vector(v_cache[index]);
}
#endif
