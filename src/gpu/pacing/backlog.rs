//! What was flushed and waits, and where it is cut into submits. It sends nothing.

use std::collections::VecDeque;
use std::rc::Rc;

use web_time::Duration;

use super::costs::{Costs, Kind, Work};
use super::{BURST, MOST_QUEUED, TARGET};
use crate::error::Result;
use crate::gpu::command::Command;
use crate::gpu::raw::RawDevice;
use crate::gpu::simulated::SimulatedWork;
use crate::gpu::stats::FlushReason;

/// What is done right after a flush has reached the GPU.
pub type Then = Box<dyn FnOnce()>;

/// Hands bytes to the queue.
pub type Write = Box<dyn FnOnce(&RawDevice) -> Result<()>>;

/// What one flush submits.
pub struct Segment {
    /// Its number in the timeline.
    pub number: u64,
    pub commands: Vec<Command>,
    /// The ring of staged writes, and the bytes that copies among the commands take from its start.
    pub staged: Option<(wgpu::Buffer, Vec<u8>)>,
    pub reason: FlushReason,
}

pub(super) enum Item {
    /// A segment, how many of its commands were submitted, and what follows it.
    Segment(Segment, usize, Vec<Then>),
    /// Bytes that go to the queue by themselves.
    Write(u64, Write),
}

/// A submit that was not reported as done yet.
pub(super) struct Piece {
    pub number: u64,
    pub parts: Vec<Work>,
    pub expected: f64,
    pub sent: Duration,
    /// When a simulated GPU is done with it.
    pub simulated: Option<Duration>,
}

/// What waits and what is in flight.
#[derive(Default)]
pub(super) struct State {
    pub backlog: VecDeque<Item>,
    pub in_flight: VecDeque<Piece>,
    /// Writes after the last submit.
    pub loose: Vec<Work>,
    pub costs: Costs,
    pub last_number: u64,
    /// What came last found an idle GPU, and nothing of it is done yet.
    is_burst: bool,
    last_done: Duration,
    /// The longest dispatch that was submitted, in nanoseconds.
    pub longest: f64,
}

/// What happens next.
pub(super) enum Next {
    Write(Write, Work),
    /// Nothing but an end of the writes before it, which can be waited for.
    Fence,
    Commands {
        commands: Vec<Command>,
        staged: Option<(wgpu::Buffer, Vec<u8>)>,
        reason: FlushReason,
        parts: Vec<Work>,
        expected: f64,
        /// The number of the segment that ends here, and what follows it.
        ends: Option<(u64, Vec<Then>)>,
    },
}

impl State {
    /// How long the writes after the last submit are expected to take.
    pub fn loose(&self) -> f64 {
        self.loose.iter().map(|work| self.costs.expected(*work)).sum()
    }

    /// Whether so much more may be queued.
    fn has_room(&self, nanoseconds: f64) -> bool {
        let queued = self.in_flight.iter().map(|piece| piece.expected).sum::<f64>() + self.loose();
        let most = if self.is_burst { MOST_QUEUED + BURST } else { MOST_QUEUED };
        queued <= 0.0 || queued + nanoseconds <= most.as_nanos() as f64
    }

    /// Takes a segment that was flushed.
    pub fn push(&mut self, segment: Segment) {
        self.is_burst = self.backlog.is_empty() && self.in_flight.is_empty() || self.is_burst;
        self.backlog.push_back(Item::Segment(segment, 0, Vec::new()));
    }

    /// Where a piece of these commands ends. Pieces of one segment are about equally long.
    fn piece_end(&self, commands: &[Command]) -> usize {
        let target = TARGET.as_nanos() as f64;
        let mut sum = 0.0;
        let mut ends = Vec::with_capacity(commands.len());
        for command in commands {
            sum += self.costs.expected(work_of(command));
            ends.push(sum);
            // Further ones change nothing about the first piece.
            if sum > 4.0 * target {
                break;
            }
        }
        let pieces = (sum / target).ceil().max(1.0);
        let length = if ends.len() == commands.len() { sum / pieces } else { target };
        // A last piece that is hardly longer is not cut.
        let fitting = ends.iter().take_while(|end| **end <= length * 1.05).count();
        fitting.max(1).min(commands.len())
    }

    /// What may go now.
    pub fn next(&mut self, is_paced: bool, cuts: bool) -> Option<Next> {
        let room = |state: &Self, nanoseconds: f64| !is_paced || state.has_room(nanoseconds);
        match self.backlog.front()? {
            Item::Write(bytes, _) => {
                let work = Work { kind: Kind::Write, units: *bytes as f64, times: 1.0 };
                if !room(self, self.costs.expected(work)) {
                    return self.in_flight.is_empty().then_some(Next::Fence);
                }
                match self.backlog.pop_front() {
                    Some(Item::Write(_, write)) => Some(Next::Write(write, work)),
                    _ => None,
                }
            }
            Item::Segment(segment, done, _) => {
                let left = segment.commands.get(*done..).unwrap_or_default();
                let count = if is_paced && cuts { self.piece_end(left) } else { left.len() };
                let (parts, expected, longest) = self.sum(&left[..count.min(left.len())]);
                if !left.is_empty() && !self.in_flight.is_empty() && !room(self, expected) {
                    return None;
                }
                self.longest = if is_paced { self.longest.max(longest) } else { self.longest };
                self.take_commands(count, parts, expected)
            }
        }
    }

    /// The work of some commands by kinds, how long all of it is expected to take, and its longest dispatch.
    fn sum(&self, commands: &[Command]) -> (Vec<Work>, f64, f64) {
        let mut kinds: Vec<Work> = Vec::new();
        let (mut all, mut longest) = (0.0, 0.0);
        for command in commands {
            let work = work_of(command);
            let expected = self.costs.expected(work);
            all += expected;
            longest = if command.is_dispatch() { expected.max(longest) } else { longest };
            match kinds.iter_mut().find(|known| known.kind == work.kind) {
                Some(known) => (known.units, known.times) = (known.units + work.units, known.times + 1.0),
                None => kinds.push(work),
            }
        }
        (kinds, all, longest)
    }

    fn take_commands(&mut self, count: usize, parts: Vec<Work>, expected: f64) -> Option<Next> {
        let Some(Item::Segment(segment, done, then)) = self.backlog.front_mut() else { return None };
        let staged = segment.staged.take();
        let reason = segment.reason;
        let end = *done + count;
        if end < segment.commands.len() {
            let commands = segment.commands[*done..end].to_vec();
            *done = end;
            return Some(Next::Commands { commands, staged, reason, parts, expected, ends: None });
        }
        let commands = segment.commands.split_off(*done);
        let ends = Some((segment.number, std::mem::take(then)));
        self.backlog.pop_front();
        Some(Next::Commands { commands, staged, reason, parts, expected, ends })
    }
}

impl State {
    /// Some parts began to run when they were sent or when what was before them was done, and were done at a time.
    pub fn learn(&mut self, group: Option<(Duration, Duration, Vec<Work>)>) {
        let Some((sent, done, parts)) = group else { return };
        self.is_burst = false;
        let began = sent.max(self.last_done);
        self.last_done = done;
        self.costs.took(&parts, done.saturating_sub(began).as_nanos() as f64);
    }
}

fn work_of(command: &Command) -> Work {
    match command {
        Command::Dispatch { pipeline, bind_group, grid } => {
            let kind = Kind::Kernel { pipeline: Rc::as_ptr(pipeline) as usize, read_bytes: bind_group.read_bytes };
            Work { kind, units: grid.iter().map(|n| f64::from(*n)).product(), times: 1.0 }
        }
        Command::Copy { size, .. } => Work { kind: Kind::Copy, units: *size as f64, times: 1.0 },
    }
}

pub(super) fn simulated_work(command: &Command) -> SimulatedWork<'_> {
    match command {
        Command::Dispatch { pipeline, grid, .. } => SimulatedWork::Dispatch {
            kernel: pipeline.label(),
            workgroups: grid.iter().map(|n| u64::from(*n)).product(),
        },
        Command::Copy { size, .. } => SimulatedWork::Copy { bytes: *size },
    }
}
