// What an adapter adds to the rows of a product (LoRA; `ops/products/low_rank.rs`): B·h, of which each lane of a team takes some ranks, to be
// summed with its other sums. Rows are those of `dot_rows`: one, with TWO_ROWS two, with FOUR_ROWS four.
@group(0) @binding(LOW_RANK_BINDING) var<storage, read> low_rank: array<vec2<f32>>;
@group(0) @binding(LOW_RANK_WORDS_BINDING) var<storage, read> low_rank_words: array<u32>;

fn low_rank_part(word: u32, is_in: bool, h: vec2<f32>) -> f32 {
    if !is_in {
        return 0.0;
    }
    return dot(h, unpack2x16float(low_rank_words[word]));
}

fn low_rank_rows(rows: vec4<u32>, lane: u32) -> vec4<f32> {
    var sums = vec4<f32>(0.0);
    let end = low_rank_words[0] * 5u;
    for (var at = 1u; at < end; at += 5u) {
        let of_segment = low_rank_words[at + 1u];
        // Rows before the first wrap.
        let in_segment = rows - low_rank_words[at];
        let is_in = in_segment < vec4<u32>(of_segment);
        let words = low_rank_words[at + 4u] + in_segment;
        let first_pair = low_rank_words[at + 2u] / 2u;
        let pairs = low_rank_words[at + 3u];
        for (var pair = lane; pair < pairs; pair += TEAM) {
            let h = low_rank[first_pair + pair];
            let word = words + pair * of_segment;
            sums.x += low_rank_part(word.x, is_in.x, h);
#ifdef TWO_ROWS
            sums.y += low_rank_part(word.y, is_in.y, h);
#endif
#ifdef FOUR_ROWS
            sums.z += low_rank_part(word.z, is_in.z, h);
            sums.w += low_rank_part(word.w, is_in.w, h);
#endif
        }
    }
    return sums;
}
