// Logits of a workgroup's share of the vocabulary, four at a time per invocation, so that no read waits for another. The kernel
// binds `logits` and defines `params.vocabulary`.

// From one token of an invocation to its next.
const STRIDE: u32 = GROUPS * 256u;

fn four_tokens(first: u32) -> vec4<u32> {
    return vec4<u32>(first, first + STRIDE, first + 2u * STRIDE, first + 3u * STRIDE);
}

// Of the row that begins at `row_at`. Those past the end repeat the last one; callers must ignore them.
fn four_logits(row_at: u32, tokens: vec4<u32>) -> vec4<u32> {
    let at = row_at + min(tokens, vec4<u32>(params.vocabulary - 1u));
    return vec4<u32>(logits[at.x], logits[at.y], logits[at.z], logits[at.w]);
}
