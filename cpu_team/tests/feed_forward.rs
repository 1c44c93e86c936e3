//! Feed-forwards by several threads: the same as step by step with one, to the bit.
#![allow(clippy::unwrap_used, reason = "a test that fails says so by a panic")]
#![allow(unsafe_code, reason = "jobs name memory by addresses")]

use std::thread::{scope, yield_now};

use rillm_cpu_kernels::{Activation, Format, Packed, Quantized, Weights, activate, add, gate, mat_mul_packed, pack};
use rillm_cpu_team::{Between, Board, FeedForward, Matrix, Outcome};

#[path = "../../cpu_kernels/tests/support/mod.rs"]
mod support;
mod system;

use support::{Known, Rng, formats};
use system::aligned::Aligned;
use system::{System, Team, helped};

/// A packed matrix in memory that is aligned.
struct Weight {
    memory: Aligned,
    packed: Vec<u8>,
    matrix: Matrix,
    format: Format,
}

impl Weight {
    fn new(known: &Known, gguf_type: u32, rows: usize, columns: usize, rng: &mut Rng) -> Self {
        let mut packed = vec![0; Packed::bytes(known.format, rows, columns).unwrap()];
        let file = known.matrix(rows, columns, rng);
        pack(&Weights::new(known.format, &file, rows, columns).unwrap(), 0, &mut packed).unwrap();
        let memory = Aligned::of(&packed);
        let matrix = Matrix { at: memory.at(), gguf_type, is_packed: true, rows, columns };
        assert_eq!(matrix.bytes().unwrap(), memory.length());
        Self { memory, packed, matrix, format: known.format }
    }

    fn multiply(&self, x: &[f32], tokens: usize) -> Vec<f32> {
        let Matrix { rows, columns, .. } = self.matrix;
        let mut out = vec![f32::NAN; tokens * rows];
        let x = Quantized::new(x, tokens, columns).unwrap();
        mat_mul_packed(&Packed::new(self.format, &self.packed, rows, columns).unwrap(), &x, &mut out).unwrap();
        out
    }
}

struct Subject {
    up: Weight,
    down: Weight,
    activation: Activation,
    is_gated: bool,
    x: Vec<f32>,
    bias: Vec<f32>,
    tokens: usize,
}

impl Subject {
    fn step_by_step(&self) -> Vec<f32> {
        let (rows, inner) = (self.up.matrix.rows, self.down.matrix.columns);
        let mut products = self.up.multiply(&self.x, self.tokens);
        let mut activated = vec![0.0; self.tokens * inner];
        for (products, activated) in products.chunks_exact_mut(rows).zip(activated.chunks_exact_mut(inner)) {
            add(products, &self.bias);
            if self.is_gated {
                gate(self.activation, &products[..inner], &products[inner..], activated);
            } else {
                activated.copy_from_slice(products);
                activate(self.activation, activated);
            }
        }
        self.down.multiply(&activated, self.tokens)
    }

    fn run(&self, board: &Board, between: &mut Between) -> (Option<Outcome>, Vec<f32>) {
        assert_eq!(self.up.memory.at() % 16, 0);
        let work = FeedForward {
            up: self.up.matrix,
            down: self.down.matrix,
            activation: self.activation,
            is_gated: self.is_gated,
        };
        let mut out = vec![f32::NAN; self.tokens * self.down.matrix.rows];
        let bias = if self.bias.is_empty() { 0 } else { self.bias.as_ptr().expose_provenance() };
        let addresses = [self.x.as_ptr().expose_provenance(), bias, out.as_mut_ptr().expose_provenance()];
        // SAFETY: all of it lives until the end of this function.
        let outcome = unsafe { work.run((board, &System), addresses, self.tokens, between) };
        (outcome.ok(), out)
    }
}

const FORMATS: [(&str, u32); 4] = [("q4_0", 2), ("q8_0", 8), ("q5_1", 7), ("q4_k", 12)];

const FUNCTIONS: [Activation; 6] = [
    Activation::Silu(1.0),
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Relu,
    Activation::ReluSquared,
    Activation::Silu(0.625),
];

/// One of a format, and of a shape: tokens, columns, columns between the products, outputs. `number` says the rest.
fn subject((name, gguf_type): (&str, u32), [tokens, columns, inner, outputs]: [usize; 4], number: usize) -> Subject {
    let known = formats().into_iter().find(|known| known.name == name).unwrap();
    let mut rng = Rng(23 + number as u64);
    let is_gated = number.is_multiple_of(2);
    let rows = if is_gated { 2 * inner } else { inner };
    let bias = if number % 3 == 1 { vec![] } else { rng.floats(rows) };
    Subject {
        up: Weight::new(&known, gguf_type, rows, columns, &mut rng),
        down: Weight::new(&known, gguf_type, outputs, inner, &mut rng),
        activation: FUNCTIONS[number % FUNCTIONS.len()],
        is_gated,
        x: rng.floats(tokens * columns),
        bias,
        tokens,
    }
}

fn subjects() -> Vec<(String, Subject)> {
    let shapes = [[1, 256, 256, 8], [0, 256, 256, 8], [3, 512, 256, 131], [67, 256, 256, 23]];
    let of_format = |format| shapes.map(|shape| (format, shape));
    // The last has more products than are kept at once, and tokens that are no multiple of those that are.
    let all = FORMATS.into_iter().flat_map(of_format).chain([(FORMATS[0], [131, 32, 16_640, 16])]);
    all.enumerate()
        .map(|(number, (format, shape))| (format!("{format:?} {shape:?}"), subject(format, shape, number)))
        .collect()
}

#[test]
fn they_are_those_of_one_thread_step_by_step() {
    let subjects: Vec<_> =
        subjects().into_iter().map(|(what, subject)| (what, subject.step_by_step(), subject)).collect();
    for helpers in [0, 3] {
        let board = Board::new();
        let mut between = Between::none();
        scope(|scope| {
            let _team = Team(vec![&board]);
            for _ in 0..helpers {
                scope.spawn(|| helped(&board));
            }
            while board.joined() < helpers {
                yield_now();
            }
            for (number, (what, expected, subject)) in subjects.iter().enumerate() {
                let (outcome, found) = subject.run(&board, &mut between);
                assert_eq!(outcome, Some(Outcome::Done), "{what}");
                let is_same = found.iter().zip(expected).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(is_same, "{what}, {helpers} helpers");
                // With memory of the last one, and without.
                between.keep(if number % 2 == 0 { 0 } else { usize::MAX }, 1);
            }
        });
    }
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_read() {
    let board = Board::new();
    let subject_of_test = || subject(FORMATS[0], [3, 512, 256, 131], 2);
    let subject = subject_of_test();
    let expected = subject.step_by_step();
    let mut between = Between::none();
    let refused = |change: &dyn Fn(&mut Subject)| {
        let mut other = subject_of_test();
        change(&mut other);
        let (outcome, out) = other.run(&board, &mut Between::none());
        assert!(outcome.is_none_or(|outcome| outcome == Outcome::Refused), "{outcome:?}");
        assert!(out.iter().all(|number| number.is_nan()));
    };
    refused(&|other| other.is_gated = false);
    refused(&|other| other.down.matrix.columns -= 32);
    refused(&|other| other.up.matrix.is_packed = false);
    refused(&|other| other.down.matrix.is_packed = false);
    refused(&|other| other.up.matrix.gguf_type = 99);
    let (outcome, found) = subject.run(&board, &mut between);
    assert_eq!((outcome, found), (Some(Outcome::Done), expected));
}
