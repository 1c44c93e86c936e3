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
    /// Heads of keys, and tokens, of a part.
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
        // By heads first, since heads share nothing.
        let by_tokens = parts.div_ceil(heads).min(tokens / LEAST_TOKENS).max(1);
        let of_part = [heads.div_ceil(parts.min(heads)), tokens.div_ceil(by_tokens)];
        Ok(Self { attention, q, caches, seen, out, of_part })
    }

    /// The job, for as long as this stays where it is.
    pub fn job(&self) -> AttentionJob {
        let [heads, tokens] = self.of_part;
        let parts = self.attention.kv_heads.div_ceil(heads) * self.seen.len().div_ceil(tokens);
        AttentionJob { attended: std::ptr::from_ref(self).expose_provenance(), parts: parts.max(1) as u32 }
    }

    /// Those that see most come first, so that the last parts are short.
    fn part(&self, part: usize) -> Part {
        let [heads, tokens] = self.of_part;
        let (all_heads, all_tokens) = (self.attention.kv_heads, self.seen.len());
        let of_heads = all_heads.div_ceil(heads).max(1);
        let head = part % of_heads * heads;
        let token = (all_tokens.div_ceil(tokens).saturating_sub(1 + part / of_heads)) * tokens;
        Part { tokens: token..all_tokens.min(token + tokens), kv_heads: head..all_heads.min(head + heads) }
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
