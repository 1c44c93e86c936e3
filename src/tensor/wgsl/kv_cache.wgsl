// How keys and values stand in the KV cache: as f32, or with the flag CACHE_F16 two f16 a word, which need no shader-f16. A
// kernel declares its caches as arrays of what it takes at once: one word, a pair of numbers, or four.
#ifdef CACHE_F16
alias CacheWord = u32;
alias CachePair = u32;
alias CacheVector = vec2<u32>;

// The number of an index, of the word that `index / 2` names.
fn cached_number(word: CacheWord, index: u32) -> f32 {
    return unpack2x16float(word >> (index % 2u * 16u)).x;
}

fn cached_word(index: u32) -> u32 {
    return index / 2u;
}

fn cached_vector(words: CacheVector) -> vec4<f32> {
    return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
}

// Numbers that f16 does not have become its largest.
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

fn cache_pair(values: vec2<f32>) -> CachePair {
    return values;
}
#endif
