//! A team of the CPU in this process: one thread, and a memory of its own, of which it sees no more than its trait tells.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use rillm::gpu::{Problem, Team, TeamAddress, TeamAttention, TeamFeedForward, TeamMatrix, memory_of};
use rillm_cpu_kernels::{
    Activation, Format, Mismatch, Packed, Quantized, Received, Weights, activate, dequantize, gate, mat_mul,
    mat_mul_packed, pack,
};

/// Memory by address, and what was done with it.
#[derive(Default)]
pub struct LocalTeam {
    pub memory: Mutex<BTreeMap<TeamAddress, Vec<u8>>>,
    pub next: AtomicU64,
    /// Bytes of each of its memories; 0 for one without a limit.
    pub of_memory: usize,
    /// Bytes that it gives at most; 0 for no limit.
    pub most: usize,
    pub products: AtomicUsize,
    pub rows: AtomicUsize,
    /// Calls of attention.
    pub attentions: AtomicUsize,
    /// Caches that were where threads keep them, and their bytes.
    pub places: AtomicUsize,
    pub attended: AtomicUsize,
    /// Bytes that were sent by `write`.
    pub written: AtomicUsize,
    /// From this product on, if it is not 0, a thread is broken.
    pub breaks_at: usize,
    /// There is no room for activations.
    pub has_no_room: AtomicBool,
    /// Calls of feed-forwards.
    pub feed_forwards: AtomicUsize,
    /// There is none for what lies between the products of one.
    pub has_no_room_between: AtomicBool,
    /// There is none for queries, keys and values.
    pub has_no_room_for_keys: AtomicBool,
}

impl fmt::Debug for LocalTeam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalTeam")
    }
}

fn text(mismatch: Mismatch) -> Problem {
    Problem::Invalid(mismatch.to_string())
}

/// Bytes where floats may begin.
fn floats_of(bytes: &[u8]) -> Vec<f32> {
    let mut floats = vec![0.0; bytes.len().div_ceil(4)];
    bytemuck::cast_slice_mut(&mut floats)[..bytes.len()].copy_from_slice(bytes);
    floats
}

impl LocalTeam {
    /// Bytes that it holds.
    pub fn held(&self) -> usize {
        self.memory.lock().unwrap().values().map(Vec::len).sum()
    }

    /// How many memories it has taken.
    pub fn memories(&self) -> usize {
        memory_of(self.next.load(Ordering::Relaxed)) as usize + 1
    }

    fn with<T>(&self, at: TeamAddress, work: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut memory = self.memory.lock().unwrap();
        let (begin, bytes) = memory.range_mut(..=at).next_back().unwrap();
        work(&mut bytes[(at - begin) as usize..])
    }

    fn with_matrix<T>(&self, matrix: TeamMatrix, work: impl FnOnce(Format, &mut [u8]) -> T) -> T {
        let format = Format::by_gguf_type(matrix.gguf_type).unwrap();
        let bytes = if matrix.is_packed {
            Packed::bytes(format, matrix.rows, matrix.columns).unwrap()
        } else {
            matrix.rows * format.row_bytes(matrix.columns).unwrap()
        };
        self.with(matrix.at, |memory| work(format, &mut memory[..bytes]))
    }
}

impl Team for LocalTeam {
    fn allocate(&self, bytes: usize) -> Option<TeamAddress> {
        if self.most > 0 && self.held() + bytes > self.most {
            return None;
        }
        // Never the same address again, so that what was given back is missed.
        let mut at = self.next.load(Ordering::Relaxed) + 16;
        let end = at + bytes as u64;
        if self.of_memory > 0 && end as u32 as usize > self.of_memory {
            at = ((u64::from(memory_of(at)) + 1) << 32) + 16;
        }
        self.next.store(at + bytes.next_multiple_of(16) as u64, Ordering::Relaxed);
        self.memory.lock().unwrap().insert(at, vec![0; bytes]);
        Some(at)
    }

    fn release(&self, at: TeamAddress, bytes: usize) {
        let released = self.memory.lock().unwrap().remove(&at);
        assert_eq!(released.map(|memory| memory.len()), Some(bytes));
    }

    fn write(&self, at: TeamAddress, bytes: &[u8]) -> Result<(), Problem> {
        self.written.fetch_add(bytes.len(), Ordering::Relaxed);
        self.with(at, |memory| memory[..bytes.len()].copy_from_slice(bytes));
        Ok(())
    }

    fn read(&self, at: TeamAddress, bytes: &mut [u8]) -> Result<(), Problem> {
        self.with(at, |memory| bytes.copy_from_slice(&memory[..bytes.len()]));
        Ok(())
    }

    fn pack(&self, matrix: TeamMatrix, first: usize, count: usize, file: &[u8]) -> Result<(), Problem> {
        self.with_matrix(matrix, |format, packed| {
            pack(&Weights::new(format, file, count, matrix.columns).map_err(text)?, first, packed).map_err(text)
        })
    }

    fn multiply(&self, matrix: TeamMatrix, rows: Range<usize>, x: &[f32], out: &mut [f32]) -> Result<(), Problem> {
        if self.breaks_at > 0 && self.products.fetch_add(1, Ordering::Relaxed) >= self.breaks_at {
            return Err(Problem::Invalid("a thread broke".to_owned()));
        }
        if self.has_no_room.load(Ordering::Relaxed) {
            return Err(Problem::NoRoom("there is no room for activations".to_owned()));
        }
        self.rows.fetch_add(rows.len(), Ordering::Relaxed);
        let (tokens, columns) = (x.len() / matrix.columns, matrix.columns);
        self.with_matrix(matrix, |format, bytes| {
            if matrix.is_packed {
                let packed = Packed::new(format, bytes, matrix.rows, columns).map_err(text)?;
                let x = Quantized::new(x, tokens, columns).map_err(text)?;
                return mat_mul_packed(&packed.rows(rows).map_err(text)?, &x, out).map_err(text);
            }
            let weights = Weights::new(format, bytes, matrix.rows, columns).map_err(text)?;
            mat_mul(&weights.rows(rows).map_err(text)?, tokens, x, out).map_err(text)
        })
    }

    fn attend(&self, attention: TeamAttention<'_>, sums: &mut [f32], totals: &mut [f32]) -> Result<(), Problem> {
        if self.has_no_room_for_keys.load(Ordering::Relaxed) {
            return Err(Problem::NoRoom("there is no room for activations".to_owned()));
        }
        self.attentions.fetch_add(1, Ordering::Relaxed);
        let TeamAttention { words, q, keys, values, numbers, places } = attention;
        let received = Received::new(words).map_err(text)?;
        let [_, k_bytes, v_bytes, _] = received.lengths();
        let at_place = |at: TeamAddress, sent: &[u8], count: usize| {
            if at == 0 { floats_of(sent) } else { self.with(at, |memory| floats_of(&memory[..count])) }
        };
        if places[0] > 0 && places[1] > 0 {
            assert_eq!(memory_of(places[0]), memory_of(places[1]), "threads work in one memory at a time");
        }
        let (keys, values) = (at_place(places[0], keys, k_bytes), at_place(places[1], values, v_bytes));
        for (at, bytes) in places.into_iter().zip([k_bytes, v_bytes]) {
            self.places.fetch_add(usize::from(at > 0), Ordering::Relaxed);
            self.attended.fetch_add(if at > 0 { bytes } else { 0 }, Ordering::Relaxed);
        }
        let [keys, values] =
            [(&keys, k_bytes), (&values, v_bytes)].map(|(floats, count)| &bytemuck::cast_slice(floats)[..count]);
        let (attention, caches) = received.attention(keys, values, numbers).map_err(text)?;
        attention.attend(q, caches, &received.seen, sums, totals).map_err(text)
    }

    fn feed_forward(&self, feed_forward: TeamFeedForward<'_>, out: &mut [f32]) -> Result<(), Problem> {
        if self.has_no_room_between.load(Ordering::Relaxed) {
            return Err(Problem::NoRoom("there is no room for activations".to_owned()));
        }
        self.feed_forwards.fetch_add(1, Ordering::Relaxed);
        let TeamFeedForward { up, down, activation, is_gated, x, bias } = feed_forward;
        assert_eq!(memory_of(up.at), memory_of(down.at), "threads work in one memory at a time");
        let activation = Activation::of_words(activation).unwrap();
        let (tokens, inner) = (feed_forward.tokens(), down.columns);
        let mut products = vec![0.0; tokens * up.rows];
        self.multiply(up, 0..up.rows, x, &mut products)?;
        let mut activated = vec![0.0; tokens * inner];
        for (products, activated) in products.chunks_exact_mut(up.rows).zip(activated.chunks_exact_mut(inner)) {
            products.iter_mut().zip(bias).for_each(|(product, bias)| *product += bias);
            if is_gated {
                gate(activation, &products[..inner], &products[inner..], activated);
            } else {
                activated.copy_from_slice(products);
                activate(activation, activated);
            }
        }
        self.multiply(down, 0..down.rows, &activated, out)
    }

    fn row(&self, matrix: TeamMatrix, row: usize, out: &mut [f32]) -> Result<(), Problem> {
        self.with_matrix(matrix, |format, bytes| {
            if matrix.is_packed {
                let packed = Packed::new(format, bytes, matrix.rows, matrix.columns).map_err(text)?;
                return packed.dequantize_row(row, out).map_err(text);
            }
            let weights = Weights::new(format, bytes, matrix.rows, matrix.columns).map_err(text)?;
            dequantize(&weights.rows(row..row + 1).map_err(text)?, out).map_err(text)
        })
    }

    fn threads(&self) -> usize {
        7
    }

    fn most_bytes(&self) -> u64 {
        if self.most == 0 { u64::MAX } else { self.most as u64 }
    }
}
