//! Attention by several threads: the same as by one.
#![allow(clippy::unwrap_used, reason = "a test that fails says so by a panic")]
#![allow(unsafe_code, reason = "jobs name memory by addresses")]

use std::thread::{scope, yield_now};

use half::f16;
use rillm_cpu_kernels::{Added, Attention, Cache, Received, Seen, Sent};
use rillm_cpu_team::{Attended, Board, Job, Outcome};

#[path = "../../cpu_kernels/tests/support/mod.rs"]
mod support;
mod system;

use support::Rng;
use system::{System, Team, helped};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    F32,
    F16,
    Q8_0,
}

/// The bytes of a cache; floats begin where a float may.
fn cache(rng: &mut Rng, kind: Kind, numbers: usize) -> Vec<f32> {
    let floats = rng.floats(numbers);
    let bytes: Vec<u8> = match kind {
        Kind::F32 => return floats,
        Kind::F16 => floats.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect(),
        Kind::Q8_0 => {
            let pair = |pair: &[f32]| {
                let quants = pair.iter().map(|x| (x * 127.0) as i8 as u8).chain([0; 64]).take(64);
                quants.chain([0.01f32, 0.02].map(|x| f16::from_f32(x).to_le_bytes()).concat()).collect::<Vec<u8>>()
            };
            floats.chunks(64).flat_map(pair).collect()
        }
    };
    bytes.chunks(4).map(|four| f32::from_le_bytes(std::array::from_fn(|at| *four.get(at).unwrap_or(&0)))).collect()
}

fn bytes(floats: &[f32]) -> Vec<u8> {
    floats.iter().flat_map(|x| x.to_le_bytes()).collect()
}

struct Subject {
    attention: Attention<'static>,
    kind: Kind,
    columns: usize,
    stride: usize,
    /// One cache is keys and values.
    is_shared: bool,
    caches: [Vec<f32>; 2],
    bytes: [Vec<u8>; 2],
    q: Vec<f32>,
    seen: Vec<Seen>,
}

/// Heads, heads of keys, dimensions, rows, tokens.
const SHAPES: [[usize; 5]; 9] = [
    [9, 3, 64, 521, 211],
    [14, 2, 64, 1201, 1],
    [8, 8, 32, 131, 131],
    [7, 1, 80, 307, 97],
    [6, 3, 37, 101, 5],
    [5, 5, 33, 257, 67],
    [32, 8, 64, 401, 3],
    [2, 1, 16, 40, 0],
    [4, 2, 576, 61, 29],
];

impl Subject {
    fn new(index: usize, kind: Kind, rng: &mut Rng) -> Self {
        let [heads, kv_heads, head_dim, rows, tokens] = SHAPES[index];
        let stride = if kind == Kind::Q8_0 { head_dim.next_multiple_of(32) } else { head_dim };
        let columns = kv_heads * stride;
        let caches = [(); 2].map(|()| cache(rng, kind, rows * columns));
        let bytes = [bytes(&caches[0]), bytes(&caches[1])];
        let slopes: &'static [f32] = rng.floats(heads).leak();
        let distances: &'static [f32] = rng.floats(heads * 9).leak();
        let added = match (index + kind as usize) % 3 {
            0 => Added::Nothing,
            1 => Added::Slopes(slopes),
            _ => Added::Distances { numbers: distances, reach: 4 },
        };
        let softcap = (index % 2 == 1).then_some(1.5);
        // Those before, all of a text, or what follows from no rule; the row at distance 0 before all that are seen as well.
        let seen = (0..tokens)
            .map(|token| {
                let own = rows - tokens + token;
                match index % 4 {
                    0 => Seen { rows: own.saturating_sub(75)..own + 1, own },
                    1 => Seen { rows: 0..own + 1, own },
                    2 if token % 5 == 4 => Seen { rows: 7..7, own: 2 },
                    2 => Seen { rows: 17..rows, own: token },
                    _ => {
                        let end = 1 + rng.below(rows);
                        Seen { rows: rng.below(end)..end, own: end / 2 }
                    }
                }
            })
            .collect();
        let attention = Attention { heads, kv_heads, head_dim, scale: 0.7, softcap, added };
        let q = rng.floats(tokens * heads * head_dim);
        Self { attention, kind, columns, stride, is_shared: index == 8, caches, bytes, q, seen }
    }

    fn caches(&self) -> [Cache<'_>; 2] {
        [0, usize::from(!self.is_shared)].map(|at| match self.kind {
            Kind::F32 => Cache::f32(&self.caches[at], self.columns, self.stride),
            Kind::F16 => Cache::f16(&self.bytes[at], self.columns, self.stride),
            Kind::Q8_0 => Cache::q8_0(&self.bytes[at], self.columns, self.stride).unwrap(),
        })
    }

    fn places(&self) -> [Vec<f32>; 2] {
        [vec![f32::NAN; self.q.len()], vec![f32::NAN; 2 * self.seen.len() * self.attention.heads]]
    }

    fn alone(&self) -> [Vec<f32>; 2] {
        let [mut sums, mut totals] = self.places();
        self.attention.attend(&self.q, self.caches(), &self.seen, &mut sums, &mut totals).unwrap();
        [sums, totals]
    }

    fn on(&self, board: &Board) -> (u32, [Vec<f32>; 2]) {
        let [mut sums, mut totals] = self.places();
        let sent = Sent::new(&self.attention, &self.q, self.caches(), &self.seen).unwrap();
        assert_eq!(sent.words[0] as usize, sent.words.len());
        assert_eq!(sent.values.is_empty(), self.is_shared || self.seen.is_empty());
        let received = Received::new(&sent.words).unwrap();
        assert_eq!(received.lengths(), [sent.q.len(), sent.keys.len(), sent.values.len(), sent.numbers.len()]);
        let out = [&mut sums, &mut totals].map(|out| out.as_mut_ptr().expose_provenance());
        let threads = board.joined() as usize + 1;
        let attended = Attended::new(received, sent.q, [sent.keys, sent.values], sent.numbers, out, threads).unwrap();
        let job = Job::Attention(attended.job());
        // SAFETY: all of it lives until the end of this function.
        assert_eq!(unsafe { board.run(&job, &System) }, Outcome::Done);
        (job.parts(), [sums, totals])
    }
}

fn bits(floats: &[Vec<f32>; 2]) -> [Vec<u32>; 2] {
    floats.each_ref().map(|floats| floats.iter().map(|x| x.to_bits()).collect())
}

#[test]
fn attention_is_that_of_one_thread_bit_for_bit() {
    let mut rng = Rng(23);
    let mut subjects = Vec::new();
    for (index, shape) in SHAPES.iter().enumerate() {
        for kind in [Kind::F32, Kind::F16, Kind::Q8_0] {
            let subject = Subject::new(index, kind, &mut rng);
            let alone = bits(&subject.alone());
            subjects.push((subject, alone, format!("{shape:?}, {kind:?}")));
        }
    }
    for helpers in [0, 1, 2, 6] {
        let board = Board::new();
        let mut most = 0;
        scope(|scope| {
            let _team = Team(vec![&board]);
            for _ in 0..helpers {
                scope.spawn(|| helped(&board));
            }
            while board.joined() < helpers {
                yield_now();
            }
            for (subject, alone, what) in &subjects {
                let (parts, found) = subject.on(&board);
                assert!(bits(&found) == *alone, "{what}, {helpers} helpers, {parts} parts");
                most = most.max(parts);
            }
        });
        assert!(if helpers == 0 { most == 1 } else { most > helpers }, "{helpers} helpers: {most} parts at most");
    }
}

#[test]
fn words_that_do_not_fit_are_refused() {
    let subject = Subject::new(4, Kind::F16, &mut Rng(5));
    let sent = Sent::new(&subject.attention, &subject.q, subject.caches(), &subject.seen).unwrap();
    for length in [0, 1, 19, sent.words.len() - 1] {
        assert!(Received::new(&sent.words[..length]).is_err(), "{length} words");
    }
    assert!(Received::new(&[&sent.words[..], &[0]].concat()).is_err());
    assert!(Sent::new(&subject.attention, &subject.q[1..], subject.caches(), &subject.seen).is_err());
    // Keys that end before what is seen.
    let received = Received::new(&sent.words).unwrap();
    let [mut sums, mut totals] = subject.places();
    let out = [&mut sums, &mut totals].map(|out| out.as_mut_ptr().expose_provenance());
    let keys = &sent.keys[..sent.keys.len() / 2];
    let attended = Attended::new(received, sent.q, [keys, sent.values], sent.numbers, out, 3).unwrap();
    let board = Board::new();
    // SAFETY: as above.
    assert_eq!(unsafe { board.run(&Job::Attention(attended.job()), &System) }, Outcome::Refused);
}
