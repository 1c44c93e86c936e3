// A band of logits, four words to a row: the largest key, the least that is kept, and the depths between which it is. `band.rs` says
// the same. The kernel imports "truncation" and defines `params.vocabulary`.
const BAND: u32 = 4u;
const BAND_LOW: u32 = 2u;
// Where in a row of the settings stands what.
const BAND_WORDS: u32 = 8u;
const TYPICAL_P: u32 = 0u;
const XTC_PROBABILITY: u32 = 1u;
const XTC_THRESHOLD: u32 = 2u;
const TAU: u32 = 3u;
const ETA: u32 = 4u;

fn is_kept(key: u32, depth: u32, band: vec4<u32>) -> bool {
    return key >= band.y && band.z <= depth && depth <= band.w;
}
