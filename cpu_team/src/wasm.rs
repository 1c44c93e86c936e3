//! The module's exports and imports, and the memory's allocator.

use std::alloc::{GlobalAlloc, Layout, System, alloc_zeroed, dealloc};
use std::cell::UnsafeCell;
use std::process::abort;
use std::sync::atomic::AtomicU32;

use rillm_cpu_kernels::{Activation, Mismatch, Received, Weights, dequantize, pack};

use crate::attended::Attended;
use crate::board::{Board, Outcome};
use crate::feed_forward::{Between, FeedForward};
use crate::job::Job;
use crate::lock::Lock;
use crate::product::{Matrix, Product};
use crate::rounding::Rounding;
use crate::threads::Threads;

static BOARD: Board = Board::new();

/// Words that say what a feed-forward is.
const FEED_FORWARD_WORDS: usize = 12;

/// What is on its way within a call, whose memory serves the next one.
struct OfLeader(UnsafeCell<Between>);

#[expect(unsafe_code, reason = "the leader alone has it")]
// SAFETY: helpers read what a job names, while the leader waits for them.
unsafe impl Sync for OfLeader {}

static BETWEEN: OfLeader = OfLeader(UnsafeCell::new(Between::none()));

/// Numbers of each kind that are kept at most: 6 to 16 MB.
const MOST_KEPT: usize = 4 << 20;

/// How often a thread looks whether the allocator is free: for seconds. What takes longest in there are the zeros of a matrix.
const LOOKS: u32 = 1 << 30;

/// The library's allocator for one thread, under a lock: this target's is not made for several.
struct Locked(Lock);

impl Locked {
    fn with<T>(&self, work: impl FnOnce() -> T) -> T {
        match self.0.with(LOOKS, work) {
            Some(made) => made,
            // Whoever held it is gone, and nobody will ever allocate again: a trap, by which the engine learns that its threads are lost.
            None => abort(),
        }
    }
}

#[expect(unsafe_code, reason = "an allocator is unsafe")]
// SAFETY: all calls are the library's own, one at a time.
unsafe impl GlobalAlloc for Locked {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises, here and below.
        self.with(|| unsafe { System.alloc(layout) })
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        self.with(|| unsafe { System.dealloc(at, layout) });
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.with(|| unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        self.with(|| unsafe { System.realloc(at, layout, size) })
    }
}

#[global_allocator]
static ALLOCATOR: Locked = Locked(Lock::new());

#[expect(unsafe_code, reason = "imports are unsafe")]
#[link(wasm_import_module = "threads")]
unsafe extern "C" {
    safe fn wait(address: usize, seen: u32, milliseconds: u32);
    safe fn wake(address: usize, count: u32);
}

/// What JavaScript gives.
struct Workers;

impl Threads for Workers {
    fn wait(&self, word: &AtomicU32, seen: u32, milliseconds: u32) {
        wait(std::ptr::from_ref(word).addr(), seen, milliseconds);
    }

    fn wake(&self, word: &AtomicU32, count: u32) {
        wake(std::ptr::from_ref(word).addr(), count);
    }
}

/// What a call returns: nothing is wrong, something does not fit, a thread broke, or there is no room.
fn status(outcome: Outcome) -> u32 {
    match outcome {
        Outcome::Done => 0,
        Outcome::Refused => 1,
        Outcome::Broken => 2,
        Outcome::NoRoom => 3,
    }
}

fn fits(result: Result<(), Mismatch>) -> u32 {
    status(match result {
        Ok(()) => Outcome::Done,
        Err(mismatch) if mismatch.is_no_room() => Outcome::NoRoom,
        Err(_) => Outcome::Refused,
    })
}

/// Zeros, at a multiple of 16; 0 if there is no room.
#[expect(unsafe_code, reason = "memory is handed out by its address")]
#[unsafe(no_mangle)]
pub extern "C" fn allocate(bytes: usize) -> usize {
    match Layout::from_size_align(bytes.max(16), 16) {
        // SAFETY: it is not empty.
        Ok(layout) => unsafe { alloc_zeroed(layout) }.addr(),
        Err(_) => 0,
    }
}

/// Gives back what `allocate` gave for these bytes.
#[expect(unsafe_code, reason = "memory is given back by its address")]
#[unsafe(no_mangle)]
pub extern "C" fn release(at: usize, bytes: usize) {
    if let (false, Ok(layout)) = (at == 0, Layout::from_size_align(bytes.max(16), 16)) {
        // SAFETY: the engine gives back what it was given, once.
        unsafe { dealloc(at as *mut u8, layout) };
    }
}

fn matrix(at: usize, gguf_type: u32, is_packed: u32, rows: usize, columns: usize) -> Matrix {
    Matrix { at, gguf_type, is_packed: is_packed != 0, rows, columns }
}

/// Packs `count` rows of a file, which are at `file`, to their place from row `first` on.
#[expect(unsafe_code, reason = "the engine names what it was given by its address")]
#[unsafe(no_mangle)]
pub extern "C" fn pack_rows(
    at: usize,
    gguf_type: u32,
    rows: usize,
    columns: usize,
    first: usize,
    count: usize,
    file: usize,
) -> u32 {
    let to = matrix(at, gguf_type, 1, rows, columns);
    let from = matrix(file, gguf_type, 0, count, columns);
    let work = || {
        let bytes = to.bytes()?;
        // SAFETY: the engine has both, and no job runs.
        let (weights, packed): (Weights<'_>, &mut [u8]) =
            unsafe { (from.weights()?, std::slice::from_raw_parts_mut(at as *mut u8, bytes)) };
        pack(&weights, first, packed)
    };
    fits(work())
}

/// Makes floats of a row.
#[expect(unsafe_code, reason = "the engine names what it was given by its address")]
#[unsafe(no_mangle)]
pub extern "C" fn restore_row(
    at: usize,
    gguf_type: u32,
    is_packed: u32,
    rows: usize,
    columns: usize,
    row: usize,
    out: usize,
) -> u32 {
    let matrix = matrix(at, gguf_type, is_packed, rows, columns);
    let work = || {
        // SAFETY: the engine has both, and no job runs.
        let out = unsafe { std::slice::from_raw_parts_mut(out as *mut f32, columns) };
        if matrix.is_packed {
            // SAFETY: the same.
            return unsafe { matrix.packed()? }.dequantize_row(row, out);
        }
        // SAFETY: the same.
        dequantize(&unsafe { matrix.weights()? }.rows(row..row.saturating_add(1))?, out)
    };
    fits(work())
}

/// The products of the rows from `first` to `end` with the activations [tokens, columns] at `x`, written to `out` [tokens, rows].
#[expect(unsafe_code, reason = "the engine names what it was given by its address")]
#[unsafe(no_mangle)]
pub extern "C" fn multiply(
    at: usize,
    gguf_type: u32,
    is_packed: u32,
    rows: usize,
    columns: usize,
    first: usize,
    end: usize,
    tokens: usize,
    x: usize,
    out: usize,
) -> u32 {
    let matrix = matrix(at, gguf_type, is_packed, rows, columns);
    let threads = BOARD.joined() as usize + 1;
    // SAFETY: the engine has all of it, and waits here.
    let run = |job: Job| unsafe { BOARD.run(&job, &Workers) };
    let product = |x: usize| run(Job::Product(Product::new(matrix, first..end, tokens, [x, out], threads)));
    if !matrix.is_packed {
        return status(product(x));
    }
    // SAFETY: only the leader calls this.
    let between = unsafe { &mut *BETWEEN.0.get() };
    let rounded = &mut between.rounded;
    let outcome = match Rounding::new(x, [tokens, columns], rounded, threads) {
        Ok(rounding) => match run(Job::Rounding(rounding)) {
            Outcome::Done => product(std::ptr::from_ref(rounded).addr()),
            outcome => outcome,
        },
        Err(mismatch) => return fits(Err(mismatch)),
    };
    // Of a thread that broke it may still be read.
    if outcome != Outcome::Broken {
        between.keep(MOST_KEPT, tokens.saturating_mul(columns));
    }
    status(outcome)
}

/// A feed-forward at once: of two packed matrices that `words` name, for the activations at `x`, with what is added to the first products at `bias` or
/// nothing at 0; written to `out`.
#[expect(unsafe_code, reason = "the engine names what it was given by its address")]
#[unsafe(no_mangle)]
pub extern "C" fn feed_forward(words: usize, x: usize, bias: usize, out: usize) -> u32 {
    // SAFETY: the engine has as many.
    let words = unsafe { &*(words as *const [u32; FEED_FORWARD_WORDS]) };
    let [up, up_type, up_rows, up_columns, down, down_type, down_rows, down_columns, tokens, is_gated, kind, number] =
        *words;
    let tokens = tokens as usize;
    let Some(activation) = Activation::of_words([kind, number]) else { return status(Outcome::Refused) };
    let work = FeedForward {
        up: matrix(up as usize, up_type, 1, up_rows as usize, up_columns as usize),
        down: matrix(down as usize, down_type, 1, down_rows as usize, down_columns as usize),
        activation,
        is_gated: is_gated != 0,
    };
    // SAFETY: only the leader calls this.
    let between = unsafe { &mut *BETWEEN.0.get() };
    // SAFETY: the engine has all of it, and waits here.
    match unsafe { work.run((&BOARD, &Workers), [x, bias, out], tokens, between) } {
        Ok(outcome) => {
            if outcome != Outcome::Broken {
                let columns = down_columns.max(up_columns) as usize;
                between.keep(MOST_KEPT, tokens.min(work.at_once()).saturating_mul(columns));
            }
            status(outcome)
        }
        Err(mismatch) => fits(Err(mismatch)),
    }
}

/// Attention of what `words` say (`Sent`), with what they name at the other addresses; written to `sums` and `totals`.
#[expect(unsafe_code, reason = "the engine names what it was given by its address")]
#[unsafe(no_mangle)]
pub extern "C" fn attend(
    words: usize,
    q: usize,
    keys: usize,
    values: usize,
    numbers: usize,
    sums: usize,
    totals: usize,
) -> u32 {
    let of = || {
        // SAFETY: the engine has all of it, and waits here. The first word says how many there are.
        let received = unsafe {
            let words = words as *const u32;
            Received::new(std::slice::from_raw_parts(words, *words as usize))?
        };
        let [q_length, k_bytes, v_bytes, count] = received.lengths();
        // SAFETY: the same.
        let (q, keys, values, numbers) = unsafe {
            (
                std::slice::from_raw_parts(q as *const f32, q_length),
                std::slice::from_raw_parts(keys as *const u8, k_bytes),
                std::slice::from_raw_parts(values as *const u8, v_bytes),
                std::slice::from_raw_parts(numbers as *const f32, count),
            )
        };
        let threads = BOARD.joined() as usize + 1;
        Attended::new(received, q, [keys, values], numbers, [sums, totals], threads)
    };
    match of() {
        Ok(attended) => {
            let attended = Box::new(attended);
            // SAFETY: the same.
            let outcome = unsafe { BOARD.run(&Job::Attention(attended.job()), &Workers) };
            if outcome == Outcome::Broken {
                // A helper may still read it.
                std::mem::forget(attended);
            }
            status(outcome)
        }
        Err(mismatch) => fits(Err(mismatch)),
    }
}

/// One more thread helps. Called once by each but the leader's, in the first memory.
#[expect(unsafe_code, reason = "it is called by JavaScript")]
#[unsafe(no_mangle)]
pub extern "C" fn join() {
    BOARD.join();
}

/// Helps until the team ends, 0, or until help is wanted in another memory: its number and one. Called by each thread but the leader's, on a stack of its
/// own.
#[expect(unsafe_code, reason = "it is called by JavaScript")]
#[unsafe(no_mangle)]
pub extern "C" fn help() -> u32 {
    // SAFETY: `multiply` keeps what the leader promises.
    unsafe { BOARD.help(&Workers) }.map_or(0, |other| other + 1)
}

/// Sends helpers to the memory with this number.
#[expect(unsafe_code, reason = "it is called by JavaScript")]
#[unsafe(no_mangle)]
pub extern "C" fn send_to(memory: u32) {
    BOARD.send_to(memory, &Workers);
}

/// Lets helpers stay in this memory, of whom there are as many.
#[expect(unsafe_code, reason = "it is called by JavaScript")]
#[unsafe(no_mangle)]
pub extern "C" fn call_here(helpers: u32) {
    BOARD.call_here(helpers);
}

/// How many threads help.
#[expect(unsafe_code, reason = "it is called by JavaScript")]
#[unsafe(no_mangle)]
pub extern "C" fn joined() -> u32 {
    BOARD.joined()
}

/// A helper has trapped.
#[expect(unsafe_code, reason = "it is called by JavaScript")]
#[unsafe(no_mangle)]
pub extern "C" fn fail() {
    BOARD.fail(&Workers);
}

/// Lets all helpers end.
#[expect(unsafe_code, reason = "it is called by JavaScript")]
#[unsafe(no_mangle)]
pub extern "C" fn end() {
    BOARD.end(&Workers);
}
