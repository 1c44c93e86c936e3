//! Attention, in parts of some tokens and some heads of keys.

use rillm_cpu_kernels::{Attention, Cache, Mismatch, Part, Received, Seen};

use crate::job::{WORDS, parts_for};

/// Tokens of a part at least, if there are several: each part makes floats of the keys and values that it sees.
const LEAST_TOKENS: usize = 16;

/// Attention of tokens' queries, and where its results are.
pub struct Attended<'a> {
    attention: Attention<'a>,
    q: &'a [f32],
    caches: [Cache<'a>; 2],
    seen: Vec<Seen>,
    /// Addresses of the sums [tokens, heads · head_dim] and of the totals [tokens, heads, 2].
    out: [usize; 2],
    /// Query heads, and tokens, of a part. The heads share one of keys, or are all that share some.
    of_part: [usize; 2],
}

impl<'a> Attended<'a> {
    /// What came, for that many threads. An error if it does not fit together.
    pub fn new(
        received: Received,
        q: &'a [f32],
        [keys, values]: [&'a [u8]; 2],
        numbers: &'a [f32],
        out: [usize; 2],
        threads: usize,
    ) -> Result<Self, Mismatch> {
        let (attention, caches) = received.attention(keys, values, numbers)?;
        let seen = received.seen;
        let rows: usize = seen.iter().map(|seen| seen.rows.len()).sum();
        let work = rows.saturating_mul(2 * attention.heads * attention.head_dim);
        let parts = parts_for(work, threads);
        let (heads, tokens) = (attention.kv_heads.max(1), seen.len().max(1));
        // By heads of keys first, since these share nothing, then by tokens. Of few tokens by query heads, two at least, and not more than a
        // thread needs: each part makes floats of the same keys.
        let group = attention.heads.div_ceil(heads).max(1);
        let by_tokens = parts.div_ceil(heads).min(tokens / LEAST_TOKENS).max(1);
        let by_queries = threads.min(parts).div_ceil(heads * by_tokens).min(group.div_ceil(2)).max(1);
        let of_heads =
            if by_queries > 1 { group.div_ceil(by_queries) } else { group * heads.div_ceil(parts.min(heads)) };
        let of_part = [of_heads, tokens.div_ceil(by_tokens)];
        Ok(Self { attention, q, caches, seen, out, of_part })
    }

    /// The job, for as long as this stays where it is.
    pub fn job(&self) -> AttentionJob {
        let parts = self.by_heads() * self.seen.len().div_ceil(self.of_part[1]);
        AttentionJob { attended: std::ptr::from_ref(self).expose_provenance(), parts: parts.max(1) as u32 }
    }

    /// Parts of the heads of a token.
    fn by_heads(&self) -> usize {
        let Attention { heads, kv_heads, .. } = self.attention;
        let (of_part, group) = (self.of_part[0], heads.checked_div(kv_heads).unwrap_or(0));
        if of_part < group { kv_heads * group.div_ceil(of_part) } else { heads.div_ceil(of_part).max(1) }
    }

    /// Those that see most come first, so that the last parts are short.
    fn part(&self, part: usize) -> Part {
        let Attention { heads, kv_heads, .. } = self.attention;
        let ([of_part, tokens], by_heads) = (self.of_part, self.by_heads());
        let (group, at) = (heads.checked_div(kv_heads).unwrap_or(0), part % by_heads);
        let heads = if of_part < group {
            let by_queries = group.div_ceil(of_part);
            let (kv_head, first) = (at / by_queries, at % by_queries * of_part);
            kv_head * group + first..kv_head * group + group.min(first + of_part)
        } else {
            at * of_part..heads.min((at + 1) * of_part)
        };
        let all = self.seen.len();
        let token = (all.div_ceil(tokens).saturating_sub(1 + part / by_heads)) * tokens;
        Part { tokens: token..all.min(token + tokens), heads }
    }

    /// # Safety
    ///
    /// As for a job.
    #[expect(unsafe_code, reason = "threads share memory by addresses")]
    unsafe fn work(&self, part: usize) -> Result<(), Mismatch> {
        let [sums, totals] = self.out;
        let dim = self.attention.head_dim;
        self.attention.attend_part(self.q, self.caches, &self.seen, self.part(part), |at, sum, total| {
            // SAFETY: as the caller promises; this head of this token is this part's.
            let (to_sums, to_totals) = unsafe {
                (
                    std::slice::from_raw_parts_mut((sums as *mut f32).wrapping_add(at * dim), dim),
                    std::slice::from_raw_parts_mut((totals as *mut f32).wrapping_add(2 * at), 2),
                )
            };
            to_sums.copy_from_slice(sum);
            to_totals.copy_from_slice(&total);
        })
    }
}

/// Attention by its address.
#[derive(Clone, Copy, Debug)]
pub struct AttentionJob {
    attended: usize,
    parts: u32,
}

impl AttentionJob {
    pub(crate) fn parts(&self) -> u32 {
        self.parts
    }

    pub(crate) fn words(&self) -> [usize; WORDS] {
        let mut words = [0; WORDS];
        [words[0], words[1]] = [self.attended, self.parts as usize];
        words
    }

    pub(crate) fn of(words: [usize; WORDS]) -> Self {
        Self { attended: words[0], parts: words[1] as u32 }
    }

    /// # Safety
    ///
    /// As for a job.
    #[expect(unsafe_code, reason = "threads share memory by addresses")]
    pub(crate) unsafe fn work(&self, part: u32) -> Result<(), Mismatch> {
        // SAFETY: as the caller promises.
        unsafe { (*(self.attended as *const Attended<'_>)).work(part as usize) }
    }
}
