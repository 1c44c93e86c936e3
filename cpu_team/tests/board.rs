//! Products by several threads: the same as by one, whoever comes, goes or breaks.
#![allow(clippy::unwrap_used, reason = "a test that fails says so by a panic")]
#![allow(unsafe_code, reason = "jobs name memory by addresses")]

use std::cell::Cell;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::thread::{scope, sleep, yield_now};
use std::time::Duration;

use rillm_cpu_kernels::{Format, Packed, Quantized, Weights, mat_mul, mat_mul_packed, pack};
use rillm_cpu_team::{Board, Job, Matrix, Outcome, Product, Rounding, Threads};

#[path = "../../cpu_kernels/tests/support/mod.rs"]
mod support;
mod system;

use support::{Known, Rng, formats};
use system::aligned::Aligned;
use system::{System, Team, helped};

/// A thread that may not sleep.
struct Awake;

impl Threads for Awake {
    fn wait(&self, _: &AtomicU32, _: u32, _: u32) {
        yield_now();
    }

    fn wake(&self, _: &AtomicU32, _: u32) {}
}

/// A product and what it has to give.
struct Subject {
    bytes: Aligned,
    matrix: Matrix,
    x: Vec<f32>,
    tokens: usize,
    expected: Vec<f32>,
}

/// The `ggml_type` of a format of the tests.
fn type_of(known: &Known) -> u32 {
    let block = known.format.block();
    let same = |id: &u32| {
        let of = Format::by_gguf_type(*id);
        of.is_some_and(|of| std::mem::discriminant(&of) == std::mem::discriminant(&known.format) && of.block() == block)
    };
    (0..40).find(same).unwrap()
}

impl Subject {
    fn new(known: &Known, is_packed: bool, [rows, columns, tokens]: [usize; 3], rng: &mut Rng) -> Self {
        let file = known.matrix(rows, columns, rng);
        let weights = Weights::new(known.format, &file, rows, columns).unwrap();
        let x = rng.floats(tokens * columns);
        let mut expected = vec![0.0; tokens * rows];
        let bytes = if is_packed {
            let mut packed = vec![0; Packed::bytes(known.format, rows, columns).unwrap()];
            pack(&weights, 0, &mut packed).unwrap();
            let x = Quantized::new(&x, tokens, columns).unwrap();
            mat_mul_packed(&Packed::new(known.format, &packed, rows, columns).unwrap(), &x, &mut expected).unwrap();
            packed
        } else {
            mat_mul(&weights, tokens, &x, &mut expected).unwrap();
            file
        };
        let bytes = Aligned::of(&bytes);
        let matrix = Matrix { at: bytes.at(), gguf_type: type_of(known), is_packed, rows, columns };
        assert_eq!(matrix.bytes().unwrap(), bytes.length());
        Self { bytes, matrix, x, tokens, expected }
    }

    /// The product as the board gives it, of rows that begin with a group.
    fn run(&self, board: &Board, threads: &impl Threads, first: usize, end: usize) -> (Outcome, Vec<f32>) {
        let mut out = vec![f32::NAN; self.tokens * (end - first)];
        let n = board.joined() as usize + 1;
        let mut rounded = Quantized::none();
        let mut x = self.x.as_ptr().expose_provenance();
        if self.matrix.is_packed {
            // Where there were other activations before, or none.
            rounded.make_room(self.tokens % 3 * 40, 512).unwrap();
            let rounding = Rounding::new(x, [self.tokens, self.matrix.columns], &mut rounded, n).unwrap();
            // SAFETY: all of it lives until the end of this function.
            let outcome = unsafe { board.run(&Job::Rounding(rounding), threads) };
            if outcome != Outcome::Done {
                return (outcome, out);
            }
            x = std::ptr::from_ref(&rounded).expose_provenance();
        }
        let matrix = Matrix { at: self.bytes.at(), ..self.matrix };
        let addresses = [x, out.as_mut_ptr().expose_provenance()];
        let job = Job::Product(Product::new(matrix, first..end, self.tokens, addresses, n));
        // SAFETY: all of it lives until the end of this function.
        let outcome = unsafe { board.run(&job, threads) };
        (outcome, out)
    }

    fn check(&self, board: &Board, threads: &impl Threads, what: &str) {
        let rows = self.matrix.rows;
        for (first, end) in [(0, rows), (rows / 3 / 8 * 8, rows), (0, rows / 2 / 8 * 8)] {
            let (outcome, out) = self.run(board, threads, first, end);
            assert_eq!(outcome, Outcome::Done, "{what}");
            for token in 0..self.tokens {
                let expected = &self.expected[token * rows..][first..end];
                let found = &out[token * (end - first)..][..end - first];
                assert!(
                    found.iter().zip(expected).all(|(a, b)| a.to_bits() == b.to_bits()),
                    "{what}, rows {first} to {end}, token {token}"
                );
            }
        }
    }
}

/// Runs `work` beside helpers.
fn beside(board: &Board, helpers: usize, work: impl FnOnce()) {
    scope(|scope| {
        let _team = Team(vec![board]);
        for _ in 0..helpers {
            scope.spawn(|| helped(board));
        }
        work();
    });
}

#[test]
fn products_are_those_of_one_thread_bit_for_bit() {
    let mut rng = Rng(11);
    let mut subjects = Vec::new();
    for known in formats()
        .iter()
        .filter(|known| known.format.block().0 <= 256 && !matches!(known.format, Format::Groups(_) | Format::Other(_)))
    {
        for shape in [
            [1, 256, 1],
            [0, 256, 2],
            [7, 512, 3],
            [331, 256, 1],
            [257, 256, 5],
            [1009, 256, 2],
            [96, 256, 0],
            [24, 512, 67],
        ] {
            for is_packed in [false, true] {
                if !is_packed || Packed::bytes(known.format, 1, 256).is_some() {
                    let what = format!("{} {shape:?}, packed: {is_packed}", known.name);
                    subjects.push((Subject::new(known, is_packed, shape, &mut rng), what));
                }
            }
        }
    }
    for helpers in [0, 2] {
        let board = Board::new();
        beside(&board, helpers, || {
            while board.joined() < helpers as u32 {
                yield_now();
            }
            for (subject, what) in &subjects {
                subject.check(&board, &System, &format!("{what}, {helpers} helpers"));
            }
        });
    }
    let board = Board::new();
    beside(&board, 1, || subjects.iter().step_by(7).for_each(|(subject, what)| subject.check(&board, &Awake, what)));
}

#[test]
fn hundreds_of_jobs_while_threads_come_and_sleep() {
    let mut rng = Rng(5);
    let q8_0 = formats().into_iter().find(|known| known.name == "q8_0").unwrap();
    let mut sized = |rows, columns, tokens| Subject::new(&q8_0, rng.below(2) == 0, [rows, columns, tokens], &mut rng);
    let subjects = [sized(512, 256, 1), sized(2048, 64, 1), sized(96, 1024, 5), sized(3, 32, 1), sized(1031, 160, 2)];
    let board = Board::new();
    scope(|scope| {
        let _team = Team(vec![&board]);
        for at in 0..3 {
            let board = &board;
            scope.spawn(move || {
                sleep(Duration::from_millis(at * 15));
                helped(board);
            });
        }
        for round in 0..300 {
            subjects[round % subjects.len()].check(&board, &System, &format!("round {round}"));
            if round % 50 == 0 {
                // Long enough that all of them sleep.
                sleep(Duration::from_millis(5));
            }
        }
    });
}

/// A memory has a board, and helpers go where the leader is.
#[test]
fn helpers_follow_the_leader_from_board_to_board() {
    let mut rng = Rng(17);
    let q8_0 = formats().into_iter().find(|known| known.name == "q8_0").unwrap();
    let subjects: Vec<_> =
        [512, 96, 2048].map(|rows| Subject::new(&q8_0, rng.below(2) == 0, [rows, 64, 2], &mut rng)).into();
    let boards = [(); 3].map(|()| Board::new());
    const HELPERS: u32 = 3;
    // By helper, the board at which it is.
    let places = [(); HELPERS as usize].map(|()| AtomicUsize::new(0));
    scope(|scope| {
        let _team = Team(boards.iter().collect());
        for place in &places {
            let boards = &boards;
            scope.spawn(move || {
                boards[0].join();
                // SAFETY: who posts jobs keeps what they need.
                while let Some(other) = unsafe { boards[place.load(SeqCst)].help(&System) } {
                    place.store(other as usize, SeqCst);
                }
            });
        }
        while boards[0].joined() < HELPERS {
            yield_now();
        }
        let at = Cell::new(0);
        let go = |to: usize| {
            boards[to].call_here(HELPERS);
            if to != at.get() {
                boards[at.get()].send_to(to as u32, &System);
            }
            at.set(to);
            assert_eq!(boards[to].joined(), HELPERS);
        };
        let all_come = || {
            while places.iter().any(|place| place.load(SeqCst) != at.get()) {
                yield_now();
            }
        };
        for round in 0..600 {
            let to = rng.below(boards.len());
            go(to);
            subjects[round % subjects.len()].check(&boards[to], &System, &format!("round {round}, board {to}"));
            if round % 100 == 0 {
                // Long enough that all of them sleep.
                sleep(Duration::from_millis(5));
            }
        }
        all_come();
        // All of them come, also those that sleep or are on their way.
        for by in [1, 2, 2, 1, 1] {
            let last = at.get();
            for to in [(last + by) % 3, (last + 2 * by) % 3] {
                sleep(Duration::from_millis(3));
                go(to);
            }
            all_come();
        }
        // Wherever they are, and for good.
        boards.iter().for_each(|board| board.end(&System));
        boards[1].call_here(HELPERS);
    });
}

#[test]
fn what_does_not_fit_is_refused_and_what_comes_after_works() {
    let mut rng = Rng(3);
    let known = &formats()[3];
    let subject = Subject::new(known, true, [64, 256, 1], &mut rng);
    let board = Board::new();
    let broken = |matrix: Matrix| Subject {
        matrix,
        bytes: Aligned::of(&[0; 64]),
        x: vec![0.0; 256],
        tokens: 1,
        expected: Vec::new(),
    };
    for matrix in [
        Matrix { gguf_type: 99, is_packed: false, ..subject.matrix },
        Matrix { columns: 33, is_packed: false, ..subject.matrix },
    ] {
        assert_eq!(broken(matrix).run(&board, &System, 0, 8).0, Outcome::Refused, "{matrix:?}");
    }
    // From the middle of a group on.
    assert_eq!(subject.run(&board, &System, 4, 64).0, Outcome::Refused);
    // More tokens than memory has room for: none of it is touched.
    let matrix = Matrix { is_packed: false, ..subject.matrix };
    let job = Job::Product(Product::new(matrix, 0..64, 1 << 50, [0, 0], 1));
    // SAFETY: no part gets as far as its addresses.
    assert_eq!(unsafe { board.run(&job, &System) }, Outcome::NoRoom);
    subject.check(&board, &System, "after that");
}

#[test]
fn a_thread_that_breaks_or_vanishes_ends_the_job_and_the_team() {
    let mut rng = Rng(9);
    let q4_0 = formats().into_iter().find(|known| known.name == "q4_0").unwrap();
    let subject = Subject::new(&q4_0, false, [4096, 256, 4], &mut rng);
    for says_so in [true, false] {
        let board = Board::new();
        let (begin, has_one) = (Barrier::new(2), AtomicBool::new(false));
        scope(|scope| {
            let _team = Team(vec![&board]);
            // It only counts as one that helps, so that jobs have parts.
            scope.spawn(|| helped(&board));
            while board.joined() == 0 {
                yield_now();
            }
            scope.spawn(|| {
                begin.wait();
                // Takes a part and never does it.
                while board.take().is_none() {
                    yield_now();
                }
                has_one.store(true, SeqCst);
                if says_so {
                    board.fail(&System);
                }
            });
            begin.wait();
            let mut outcomes = Vec::new();
            while !has_one.load(SeqCst) || outcomes.is_empty() {
                outcomes.push(subject.run(&board, &Awake, 0, 4096).0);
            }
            assert_eq!(outcomes.last(), Some(&Outcome::Broken), "says so: {says_so}");
            assert!(outcomes.iter().rev().skip(1).all(|outcome| *outcome == Outcome::Done));
            assert_eq!(subject.run(&board, &Awake, 0, 4096).0, Outcome::Broken, "and stays so");
        });
    }
}
