//! Attention on its way to threads whose memory is another than the caller's: words that say what it is, and the bytes that it reads. Of the
//! caches these are the rows that are seen.

use bytemuck::{Pod, Zeroable};

use super::{Added, Attention, Cache, Seen, begin_of};
use crate::format::{Mismatch, expect};
use crate::room::reserved;

/// The words before those of the tokens.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Header {
    /// All words.
    count: u32,
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    scale: f32,
    has_softcap: u32,
    softcap: f32,
    /// `NOTHING`, `SLOPES` or `DISTANCES`.
    added: u32,
    reach: u32,
    numbers: u32,
    /// Of the keys and of the values: which kind of cache, numbers of a row and from one head to the next, and bytes.
    kinds: [u32; 2],
    columns: [u32; 2],
    strides: [u32; 2],
    bytes: [u32; 2],
    /// Values are the keys, and have no bytes of their own.
    are_same: u32,
    tokens: u32,
}

const WORDS: usize = size_of::<Header>() / 4;
/// Words of a token: its rows and the one at distance 0.
const OF_TOKEN: usize = 3;
const NOTHING: u32 = 0;
const SLOPES: u32 = 1;
const DISTANCES: u32 = 2;

/// What `Attention::attend` takes.
pub struct Sent<'a> {
    /// What it is. The first says how many there are.
    pub words: Vec<u32>,
    /// Queries.
    pub q: &'a [f32],
    /// Rows of the keys.
    pub keys: &'a [u8],
    /// Rows of the values. None if they are the keys.
    pub values: &'a [u8],
    /// What is added to scores.
    pub numbers: &'a [f32],
}

impl<'a> Sent<'a> {
    /// An error if it does not fit together.
    pub fn new(
        attention: &Attention<'a>,
        q: &'a [f32],
        caches: [Cache<'a>; 2],
        seen: &[Seen],
    ) -> Result<Self, Mismatch> {
        attention.check(q, caches, seen)?;
        let (added, reach, numbers): (u32, usize, &[f32]) = match attention.added {
            Added::Nothing => (NOTHING, 0, &[]),
            Added::Slopes(numbers) => (SLOPES, 0, numbers),
            Added::Distances { numbers, reach } => (DISTANCES, reach, numbers),
        };
        // The row at distance 0 may be before all that are seen. Nobody asks for it where nothing is added.
        let own = seen.iter().map(|seen| seen.own).min().filter(|_| added != NOTHING).unwrap_or(usize::MAX);
        let end = seen.iter().map(|seen| seen.rows.end).max().unwrap_or(0);
        let first = begin_of(seen).min(own).min(end) / 2 * 2;
        let rows = |cache: &Cache<'a>| {
            let short = Mismatch { what: "rows of keys and values", expected: end, found: cache.rows() };
            cache.bytes(first..end).ok_or(short)
        };
        let [keys, values] = [rows(&caches[0])?, rows(&caches[1])?];
        let are_same = std::ptr::eq(keys, values) && caches[0].kind() == caches[1].kind();
        let values = if are_same { &[] } else { values };
        let Attention { heads, kv_heads, head_dim, scale, softcap, .. } = *attention;
        let of_both = |of: fn(&Cache<'a>) -> usize| Ok([word(of(&caches[0]))?, word(of(&caches[1]))?]);
        let header = Header {
            count: word(WORDS + OF_TOKEN * seen.len())?,
            heads: word(heads)?,
            kv_heads: word(kv_heads)?,
            head_dim: word(head_dim)?,
            scale,
            has_softcap: u32::from(softcap.is_some()),
            softcap: softcap.unwrap_or(0.0),
            added,
            reach: word(reach)?,
            numbers: word(numbers.len())?,
            kinds: [caches[0].kind(), caches[1].kind()],
            columns: of_both(|cache| cache.columns)?,
            strides: of_both(|cache| cache.head)?,
            bytes: [word(keys.len())?, word(values.len())?],
            are_same: u32::from(are_same),
            tokens: word(seen.len())?,
        };
        let mut words = reserved(WORDS + OF_TOKEN * seen.len())?;
        words.extend(bytemuck::cast::<Header, [u32; WORDS]>(header));
        for Seen { rows, own } in seen {
            let (start, end) = if rows.is_empty() { (first, first) } else { (rows.start, rows.end) };
            for row in [start, end, (*own).max(first)] {
                words.push(word(row - first)?);
            }
        }
        Ok(Self { words, q, keys, values, numbers })
    }
}

fn word(number: usize) -> Result<u32, Mismatch> {
    u32::try_from(number).map_err(|_| Mismatch {
        what: "a number of 32 bits",
        expected: u32::MAX as usize,
        found: number,
    })
}

/// What the words of `Sent` say.
pub struct Received {
    header: Header,
    /// What each token sees of the rows that came.
    pub seen: Vec<Seen>,
}

impl Received {
    /// An error if there are not as many words as they say.
    pub fn new(words: &[u32]) -> Result<Self, Mismatch> {
        let short = Mismatch { what: "words of attention", expected: WORDS, found: words.len() };
        let (header, tokens) = words.split_first_chunk::<WORDS>().ok_or(short)?;
        let header: Header = bytemuck::cast(*header);
        expect("words of tokens", (header.tokens as usize).saturating_mul(OF_TOKEN), tokens.len())?;
        let mut seen = reserved(header.tokens as usize)?;
        seen.extend(
            tokens
                .chunks_exact(OF_TOKEN)
                .map(|token| Seen { rows: token[0] as usize..token[1] as usize, own: token[2] as usize }),
        );
        Ok(Self { header, seen })
    }

    /// How many query heads all tokens have.
    pub fn heads(&self) -> usize {
        self.seen.len().saturating_mul(self.header.heads as usize)
    }

    /// How many queries, bytes of keys, bytes of values and numbers there are.
    pub fn lengths(&self) -> [usize; 4] {
        let Header { head_dim, bytes, numbers, .. } = self.header;
        [self.heads().saturating_mul(head_dim as usize), bytes[0] as usize, bytes[1] as usize, numbers as usize]
    }

    /// What it was.
    pub fn attention<'a>(
        &self,
        keys: &'a [u8],
        values: &'a [u8],
        numbers: &'a [f32],
    ) -> Result<(Attention<'a>, [Cache<'a>; 2]), Mismatch> {
        let Header { heads, kv_heads, head_dim, scale, has_softcap, softcap, added, reach, .. } = self.header;
        let Header { kinds, columns, strides, are_same, .. } = self.header;
        let values = if are_same == 1 { keys } else { values };
        let cache = |at: usize, bytes| Cache::of_kind(kinds[at], bytes, [columns[at] as usize, strides[at] as usize]);
        let added = match added {
            NOTHING => Added::Nothing,
            SLOPES => Added::Slopes(numbers),
            DISTANCES => Added::Distances { numbers, reach: reach as usize },
            _ => return Err(Mismatch { what: "what is added to scores", expected: 0, found: added as usize }),
        };
        let attention = Attention {
            heads: heads as usize,
            kv_heads: kv_heads as usize,
            head_dim: head_dim as usize,
            scale,
            softcap: (has_softcap == 1).then_some(softcap),
            added,
        };
        Ok((attention, [cache(0, keys)?, cache(1, values)?]))
    }
}
