//! Recorded commands, and what they refer to.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::kernel::{Bound, CpuKernel, Problem, run};
use super::memory::{Memory, copy};
use super::team::Team;

/// A recorded command.
#[derive(Clone)]
pub enum Command {
    Dispatch { kernel: Kernel, bound: Arc<[Bound]> },
    Copy { source: Memory, from: Range<usize>, target: Memory, at: usize },
}

impl Command {
    /// Runs it now.
    pub fn run(&self, team: Option<&Arc<dyn Team>>) -> Result<(), Problem> {
        match self {
            Command::Dispatch { kernel, bound } => run(&*kernel.0, bound, team),
            Command::Copy { source, from, target, at } => match copy(source, from.clone(), target, *at) {
                Some(()) => Ok(()),
                None => Err(format!("a copy of bytes {from:?} to {at} reaches past the end of a buffer").into()),
            },
        }
    }
}

/// A function in place of a shader.
#[derive(Clone)]
pub struct Kernel(pub Arc<dyn CpuKernel>);

/// Commands that an encoder and its passes record.
#[derive(Clone, Default)]
pub struct Commands(Arc<Mutex<Vec<Command>>>);

impl Commands {
    pub fn push(&self, command: Command) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(command);
    }

    pub fn take(&self) -> Vec<Command> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Commands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Commands")
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kernel")
    }
}
