//! What runs in place of a shader: a function on the bytes that are bound.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::memory::{Locked, Memory};
use super::team::{Team, TeamBytes};
use super::twin::Twin;

/// A function on bound bytes.
pub trait CpuKernel: Send + Sync {
    /// Runs it on what is bound, in the order of the binding numbers, without uniforms, and perhaps by the device's threads.
    fn run(&self, bound: Vec<Lent<'_>>, team: Option<&Arc<dyn Team>>) -> Result<(), Problem>;
}

/// Why something could not be done, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// There is no room in memory.
    NoRoom(String),
    /// What was asked does not fit together, or a thread broke.
    Invalid(String),
}

impl From<String> for Problem {
    fn from(text: String) -> Self {
        Self::Invalid(text)
    }
}

/// The bytes of one binding.
pub enum Lent<'a> {
    /// To read; with their twin, unless they are a copy.
    Read(Cow<'a, [u8]>, Option<Twin<'a>>),
    /// To read and write.
    Write(Written<'a>),
    /// All bytes of a buffer in a team's memory, to read and, if the binding says so, to write.
    Team(&'a TeamBytes),
}

/// Bytes that may be overwritten, and their twin, which is told what was.
#[derive(Debug)]
pub struct Written<'a> {
    bytes: &'a mut [u8],
    twin: Twin<'a>,
}

impl<'a> Written<'a> {
    /// The bytes as they are.
    pub fn bytes(&self) -> &[u8] {
        self.bytes
    }

    /// All of them, to be overwritten.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.twin.changed(&(0..self.bytes.len()));
        self.bytes
    }

    /// Some of them, to be overwritten. `None` if there are none of such a range.
    pub fn part_mut(&mut self, range: Range<usize>) -> Option<&mut [u8]> {
        let part = self.bytes.get_mut(range.clone())?;
        self.twin.changed(&range);
        Some(part)
    }

    /// The first of them. `None` if there are not as many.
    pub fn first(self, count: usize) -> Option<Self> {
        Some(Self { bytes: self.bytes.get_mut(..count)?, twin: self.twin })
    }
}

/// A part of a buffer, bound.
#[derive(Clone)]
pub struct Bound {
    pub memory: Memory,
    pub range: Range<usize>,
    pub is_written: bool,
}

/// Runs a kernel on what is bound. An error names what can't be lent.
pub fn run(kernel: &dyn CpuKernel, bound: &[Bound], team: Option<&Arc<dyn Team>>) -> Result<(), Problem> {
    let mut memories: Vec<&Memory> = Vec::with_capacity(bound.len());
    for binding in bound {
        if memories.iter().all(|memory| memory.address() != binding.memory.address()) {
            memories.push(&binding.memory);
        }
    }
    let addresses: Vec<usize> = memories.iter().map(|memory| memory.address()).collect();
    let mut locked: Vec<Locked<'_>> = memories.iter().map(|memory| memory.lock()).collect();
    let mut lent: Vec<Option<Lent<'_>>> = bound.iter().map(|_| None).collect();
    for (address, locked) in addresses.into_iter().zip(&mut locked) {
        lend(locked, address, bound, &mut lent)?;
    }
    kernel.run(lent.into_iter().flatten().collect(), team)
}

/// Lends one buffer's bytes to its bindings.
fn lend<'a>(
    locked: &'a mut Locked<'_>,
    address: usize,
    bound: &[Bound],
    lent: &mut [Option<Lent<'a>>],
) -> Result<(), String> {
    let mut own: Vec<usize> = (0..bound.len()).filter(|at| bound[*at].memory.address() == address).collect();
    let length = locked.of_team().map_or(locked.bytes().len(), TeamBytes::size);
    if let Some(beyond) = own.iter().find(|at| bound[**at].range.end > length) {
        return Err(format!("binding {beyond} ends at byte {} of a buffer of {length}", bound[*beyond].range.end));
    }
    if locked.of_team().is_some() {
        if let Some(part) = own.iter().find(|at| bound[**at].range != (0..length)) {
            return Err(format!("binding {part} is a part of a buffer in a team's memory"));
        }
        for at in own {
            lent[at] = locked.of_team().map(Lent::Team);
        }
        return Ok(());
    }
    if own.iter().all(|at| !bound[*at].is_written) {
        let (bytes, twins) = (locked.bytes(), locked.twins());
        for at in own {
            let range = bound[at].range.clone();
            let twin = twins.map(|of| Twin { of, first: range.start, size: length });
            lent[at] = Some(Lent::Read(Cow::Borrowed(&bytes[range]), twin));
        }
        return Ok(());
    }
    own.sort_by_key(|at| bound[*at].range.start);
    // Of ranges that overlap, all but the first are copied, which only readers may be.
    let mut end = 0;
    let mut apart = Vec::with_capacity(own.len());
    let mut last_is_written = false;
    for at in own {
        let Bound { range, is_written, .. } = &bound[at];
        if range.start >= end {
            apart.push(at);
        } else if *is_written || last_is_written {
            return Err(format!("binding {at} is written and overlaps another"));
        } else {
            lent[at] = Some(Lent::Read(Cow::Owned(locked.bytes()[range.clone()].to_vec()), None));
        }
        last_is_written = *is_written || (last_is_written && range.start < end);
        end = end.max(range.end);
    }
    let Some((mut rest, of)) = locked.all_mut() else { return Ok(()) };
    let mut begin = 0;
    for at in apart {
        let Bound { range, is_written, .. } = &bound[at];
        let (_, from) = rest.split_at_mut(range.start - begin);
        let (part, after) = from.split_at_mut(range.len());
        let twin = Twin { of, first: range.start, size: length };
        lent[at] = Some(if *is_written {
            Lent::Write(Written { bytes: part, twin })
        } else {
            Lent::Read(Cow::Borrowed(part), Some(twin))
        });
        (rest, begin) = (after, range.end);
    }
    Ok(())
}
