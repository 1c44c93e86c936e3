// The layout of keys and values in the KV cache: f32; with the flag CACHE_F16 two f16 a word, which need no shader-f16; with CACHE_Q8_0
// blocks of 32 int8 with an f16 scale (`kv_blocks.rs`). Kernels that read declare caches as arrays of CacheWord or CacheVector, kernels
// that write as arrays of CachePair.
#ifdef CACHE_Q8_0
// Two blocks are 16 words of four int8 each, and a word of both scales.
alias CacheWord = u32;
// Kernels that write one scale keep the other, which another workgroup may be writing.
alias CachePair = atomic<u32>;
alias CacheVector = u32;

// Numbers of a head, with its padding.
fn cached_head(head_dim: u32) -> u32 {
    return (head_dim + 31u) / 32u * 32u;
}

// The place of the vector of an index, four numbers; and the place of the scales of its block and the neighbouring one.
fn vector_word(index: u32) -> u32 {
    return index + index / 16u;
}

fn scales_word(index: u32) -> u32 {
    return index / 16u * 17u + 16u;
}

fn scaled_vector(quants: u32, scales: u32, index: u32) -> vec4<f32> {
    let signed = vec4<i32>(vec4<u32>(quants) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u);
    return vec4<f32>(signed) * unpack2x16float(scales >> (index / 8u % 2u * 16u)).x;
}

// The number of an index, from its words.
fn scaled_number(quants: u32, scales: u32, index: u32) -> f32 {
    let signed = bitcast<i32>(quants << (24u - index % 4u * 8u)) >> 24u;
    return f32(signed) * unpack2x16float(scales >> (index / 32u % 2u * 16u)).x;
}
#else
fn cached_head(head_dim: u32) -> u32 {
    return head_dim;
}

#ifdef CACHE_F16
alias CacheWord = u32;
alias CachePair = u32;
alias CacheVector = vec2<u32>;

// The number of an index, from word `index / 2`.
fn cached_number(word: CacheWord, index: u32) -> f32 {
    return unpack2x16float(word >> (index % 2u * 16u)).x;
}

fn cached_word(index: u32) -> u32 {
    return index / 2u;
}

fn cached_vector(words: CacheVector) -> vec4<f32> {
    return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
}

fn cached_pair(word: CachePair) -> vec2<f32> {
    return unpack2x16float(word);
}

// Numbers beyond the range of f16 become its largest.
fn cache_pair(values: vec2<f32>) -> CachePair {
    return pack2x16float(clamp(values, vec2<f32>(-65504.0), vec2<f32>(65504.0)));
}
#else
alias CacheWord = f32;
alias CachePair = vec2<f32>;
alias CacheVector = vec4<f32>;

fn cached_number(word: CacheWord, index: u32) -> f32 {
    return word;
}

fn cached_word(index: u32) -> u32 {
    return index;
}

fn cached_vector(words: CacheVector) -> vec4<f32> {
    return words;
}

fn cached_pair(pair: CachePair) -> vec2<f32> {
    return pair;
}

fn cache_pair(values: vec2<f32>) -> CachePair {
    return values;
}
#endif
#endif
