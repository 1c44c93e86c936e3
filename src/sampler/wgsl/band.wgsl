// A band of logits, four words to a row: the largest key, the least kept key, and the depths of its ends. `band.rs` has the
// same. The kernel imports "truncation" and defines `params.vocabulary`.
const BAND_LOW: u32 = 2u;

fn is_kept(key: u32, depth: u32, band: vec4<u32>) -> bool {
    return key >= band.y && band.z <= depth && depth <= band.w;
}
