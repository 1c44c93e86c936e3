//! The board on which the leader posts a job, and from which all threads take its parts.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};

use crate::job::{Job, WORDS};
use crate::threads::Threads;

/// How often a thread looks before it sleeps: about a millisecond, which is longer than what the leader does alone between two products. Who
/// sleeps wakes late.
const LOOKS: u32 = 500_000;
/// A helper that sleeps looks this often whether it should end.
const NAP_MS: u32 = 1000;
/// The leader waits this long at once for a part that a helper has, and this often before it gives up. A clock that jumps, and a page that was
/// frozen, count as one wait.
const PATIENCE: (u32, u32) = (100, 150);
/// In place of the number of the next part: there is no job.
const NONE: u32 = u32::MAX;
/// What helpers are told: to stay, or to end. Any other number is that of another board and one.
const STAY: u32 = 0;
const END: u32 = u32::MAX;

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All parts are done.
    Done,
    /// What was asked does not fit together.
    Refused,
    /// There was no room for what a part needs on its way.
    NoRoom,
    /// A thread broke while it had a part, or gave no answer. Nothing works from then on.
    Broken,
}

/// One job at a time. A memory has a board; who has several tells helpers at which of them they are wanted.
#[derive(Default)]
pub struct Board {
    /// The number of the job in the upper half, and of its next part in the lower one: who takes a part knows that it is of this job.
    next: AtomicU64,
    kind: AtomicUsize,
    job: [AtomicUsize; WORDS],
    done: AtomicU32,
    has_refused: AtomicBool,
    has_no_room: AtomicBool,
    leader_sleeps: AtomicBool,
    /// Changes with every job.
    bell: AtomicU32,
    sleepers: AtomicU32,
    joined: AtomicU32,
    is_broken: AtomicBool,
    told: AtomicU32,
}

impl Board {
    /// An empty one.
    pub const fn new() -> Self {
        Self {
            next: AtomicU64::new(NONE as u64),
            kind: AtomicUsize::new(0),
            job: [const { AtomicUsize::new(0) }; WORDS],
            done: AtomicU32::new(0),
            has_refused: AtomicBool::new(false),
            has_no_room: AtomicBool::new(false),
            leader_sleeps: AtomicBool::new(false),
            bell: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            joined: AtomicU32::new(0),
            is_broken: AtomicBool::new(false),
            told: AtomicU32::new(STAY),
        }
    }

    /// How many threads help.
    pub fn joined(&self) -> u32 {
        self.joined.load(SeqCst)
    }

    /// Posts a job, works on it and returns when all of it is done. Only one thread, the leader, may call it.
    ///
    /// # Safety
    ///
    /// What the job's addresses mean is as `Job` says, until this returns. If it returns `Broken`, helpers may still use them.
    #[expect(unsafe_code, reason = "threads share memory by addresses")]
    pub unsafe fn run(&self, job: &Job, threads: &impl Threads) -> Outcome {
        if self.is_broken.load(SeqCst) {
            return Outcome::Broken;
        }
        let number = (self.next.load(SeqCst) >> 32).wrapping_add(1) << 32;
        // Who read a part of the last job takes nothing any more.
        self.next.store(number | u64::from(NONE), SeqCst);
        let (kind, words) = job.words();
        self.kind.store(kind, SeqCst);
        for (word, value) in self.job.iter().zip(words) {
            word.store(value, SeqCst);
        }
        self.done.store(0, SeqCst);
        self.has_refused.store(false, SeqCst);
        self.has_no_room.store(false, SeqCst);
        let parts = job.parts();
        // Part 0 is the leader's own.
        self.next.store(number | 1, SeqCst);
        if parts > 1 && self.joined() > 0 {
            self.bell.fetch_add(1, SeqCst);
            if self.sleepers.load(SeqCst) > 0 {
                threads.wake(&self.bell, parts - 1);
            }
        }
        // SAFETY: as the caller promises; part 0 is nobody else's.
        unsafe { self.work(job, 0, threads) };
        while let Some((job, part)) = self.take() {
            // SAFETY: the same, and it was taken here.
            unsafe { self.work(&job, part, threads) };
        }
        let outcome = self.wait_for(parts, threads);
        self.next.store(number | u64::from(NONE), SeqCst);
        outcome
    }

    /// One more thread helps.
    pub fn join(&self) {
        self.joined.fetch_add(1, SeqCst);
    }

    /// Works on what is posted until the team ends, `None`, or until help is wanted at another board, whose number this is.
    ///
    /// # Safety
    ///
    /// The leader keeps what it promises.
    #[expect(unsafe_code, reason = "threads share memory by addresses")]
    pub unsafe fn help(&self, threads: &impl Threads) -> Option<u32> {
        loop {
            let rung = self.bell.load(SeqCst);
            let mut looks = 0;
            while looks < LOOKS {
                match self.told.load(SeqCst) {
                    STAY => {}
                    END => return None,
                    other => return Some(other - 1),
                }
                match self.take() {
                    Some((job, part)) => {
                        // SAFETY: as the leader promises; the part was taken here.
                        unsafe { self.work(&job, part, threads) };
                        looks = 0;
                    }
                    None => {
                        looks += 1;
                        spin_loop();
                    }
                }
            }
            self.sleepers.fetch_add(1, SeqCst);
            // If it rang since, this returns at once.
            threads.wait(&self.bell, rung, NAP_MS);
            self.sleepers.fetch_sub(1, SeqCst);
        }
    }

    /// A thread broke: no part that it had will be done.
    pub fn fail(&self, threads: &impl Threads) {
        self.is_broken.store(true, SeqCst);
        threads.wake(&self.done, 1);
    }

    /// Lets all helpers end.
    pub fn end(&self, threads: &impl Threads) {
        self.tell(END, threads);
    }

    /// Sends all helpers to the board with this number, those that come later as well.
    pub fn send_to(&self, other: u32, threads: &impl Threads) {
        self.tell(other.saturating_add(1), threads);
    }

    /// From now on helpers stay that come here, and as many as `helpers` count as those of a job whether they have come or not.
    pub fn call_here(&self, helpers: u32) {
        self.joined.store(helpers, SeqCst);
        // Who has ended has ended.
        let stays = |told| (told != END).then_some(STAY);
        let _ = self.told.fetch_update(SeqCst, SeqCst, stays);
    }

    fn tell(&self, what: u32, threads: &impl Threads) {
        self.told.store(what, SeqCst);
        self.bell.fetch_add(1, SeqCst);
        threads.wake(&self.bell, u32::MAX);
    }

    /// The next part of the job, which whoever takes it has to do.
    pub fn take(&self) -> Option<(Job, u32)> {
        loop {
            let seen = self.next.load(SeqCst);
            let part = seen as u32;
            if part == NONE {
                return None;
            }
            // They may be of two jobs, and then the exchange fails.
            let job = Job::of(self.kind.load(SeqCst), std::array::from_fn(|at| self.job[at].load(SeqCst)));
            if part >= job.parts() {
                return None;
            }
            if self.next.compare_exchange(seen, seen + 1, SeqCst, SeqCst).is_ok() {
                return Some((job, part));
            }
        }
    }

    #[expect(unsafe_code, reason = "threads share memory by addresses")]
    unsafe fn work(&self, job: &Job, part: u32, threads: &impl Threads) {
        // SAFETY: as the leader promises.
        match unsafe { job.work(part) } {
            Ok(()) => {}
            Err(mismatch) if mismatch.is_no_room() => self.has_no_room.store(true, SeqCst),
            Err(_) => self.has_refused.store(true, SeqCst),
        }
        self.done.fetch_add(1, SeqCst);
        if self.leader_sleeps.load(SeqCst) {
            threads.wake(&self.done, 1);
        }
    }

    fn wait_for(&self, parts: u32, threads: &impl Threads) -> Outcome {
        let (mut looks, mut waits) = (0, 0);
        loop {
            let done = self.done.load(SeqCst);
            if done == parts {
                return match (self.has_refused.load(SeqCst), self.has_no_room.load(SeqCst)) {
                    (true, _) => Outcome::Refused,
                    (_, true) => Outcome::NoRoom,
                    _ => Outcome::Done,
                };
            }
            if self.is_broken.load(SeqCst) {
                return Outcome::Broken;
            }
            looks += 1;
            if looks < LOOKS {
                spin_loop();
                continue;
            }
            looks = 0;
            self.leader_sleeps.store(true, SeqCst);
            threads.wait(&self.done, done, PATIENCE.0);
            self.leader_sleeps.store(false, SeqCst);
            waits = if self.done.load(SeqCst) == done { waits + 1 } else { 0 };
            if waits == PATIENCE.1 {
                self.is_broken.store(true, SeqCst);
            }
        }
    }
}
