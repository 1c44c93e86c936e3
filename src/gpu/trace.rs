//! A traced step: which tensors it makes and uses, and which pipelines it needs. The arena is laid out from this, and the
//! pipelines are compiled before the step first runs.

use std::rc::Rc;

use super::arena::{Layout, Lifetime, Slot, lay_out};
use super::binding::Binding;
use super::buffer::{Bank, Buffer, BufferSlice};
use super::pipeline::PipelineRequest;
use super::pool::BufferPool;
use super::transcript::Transcript;
use crate::error::Result;

#[derive(Default)]
pub(super) struct Trace {
    /// What the step allocated, in order. Held here, so that a handle that outlives the step is seen by its count.
    allocations: Vec<Buffer>,
    /// The traced buffers that each command binds, and whether it writes them.
    commands: Vec<Vec<(usize, bool)>>,
    pub pipelines: Vec<PipelineRequest>,
    /// Nobody asks for the pipelines, which cost the most to note.
    pub leaves_pipelines_out: bool,
    /// The transcript, if the caller asks for one.
    pub transcript: Option<Transcript>,
}

impl Trace {
    pub fn with_transcript() -> Self {
        Self { transcript: Some(Transcript::default()), ..Self::default() }
    }

    pub fn without_pipelines() -> Self {
        Self { leaves_pipelines_out: true, ..Self::default() }
    }

    /// A tensor of the step, which has no memory yet.
    pub fn allocate(&mut self, pool: &Rc<BufferPool>, size: u64) -> Buffer {
        let buffer = Buffer::in_trace(pool, self.allocations.len(), size);
        self.allocations.push(buffer.clone());
        buffer
    }

    /// Notes a dispatch, and the pipeline that is to be compiled for it.
    pub fn dispatch(&mut self, pipeline: Option<PipelineRequest>, bindings: &[Binding<'_>]) {
        self.pipelines.extend(pipeline);
        let uses = bindings.iter().filter_map(|binding| match binding {
            Binding::Read(_, slice) => slice.buffer.traced().map(|number| (number, false)),
            Binding::ReadWrite(_, slice) => slice.buffer.traced().map(|number| (number, true)),
            Binding::Uniform(..) => None,
        });
        self.commands.push(uses.collect());
    }

    pub fn copy(&mut self, from: &BufferSlice, to: &BufferSlice) {
        if let Some(transcript) = &mut self.transcript {
            transcript.copy(from, to);
        }
        let (source, target) = (&from.buffer, &to.buffer);
        let uses = [source.traced().map(|number| (number, false)), target.traced().map(|number| (number, true))];
        self.commands.push(uses.into_iter().flatten().collect());
    }

    /// The arena for what the step allocates, with banks of at most `largest_bank` bytes.
    pub fn layout(&self, largest_bank: u64) -> Layout {
        let end = self.commands.len();
        let mut lifetimes: Vec<Lifetime> =
            self.allocations.iter().map(|buffer| Lifetime { size: buffer.size(), first: end, last: 0 }).collect();
        let mut apart = Vec::new();
        for (index, uses) in self.commands.iter().enumerate() {
            for (number, _) in uses {
                let lifetime = &mut lifetimes[*number];
                (lifetime.first, lifetime.last) = (lifetime.first.min(index), lifetime.last.max(index));
            }
            for (written, _) in uses.iter().filter(|(_, is_written)| *is_written) {
                apart.extend(uses.iter().filter(|(other, _)| other != written).map(|(other, _)| (*written, *other)));
            }
        }
        for (buffer, lifetime) in self.allocations.iter().zip(&mut lifetimes) {
            // What outlives the step is read after it, perhaps after several replays; what no command uses is kept
            // apart as well.
            if buffer.is_shared() || lifetime.first > lifetime.last {
                (lifetime.first, lifetime.last) = (0, end);
            }
        }
        lay_out(&lifetimes, &apart, largest_bank)
    }
}

/// Hands the places of an arena out while the step is recorded, in the order in which the trace saw its allocations.
pub(super) struct ArenaCursor {
    banks: Vec<Rc<Bank>>,
    slots: Vec<(Slot, u64)>,
    next: usize,
}

impl ArenaCursor {
    pub fn new(pool: &Rc<BufferPool>, layout: &Layout, trace: &Trace) -> Result<Self> {
        let banks = layout.banks.iter().map(|size| Bank::new(pool, *size).map(Rc::new)).collect::<Result<_>>()?;
        let sizes = trace.allocations.iter().map(Buffer::size);
        Ok(Self { banks, slots: layout.slots.iter().copied().zip(sizes).collect(), next: 0 })
    }

    pub fn allocate(&mut self, size: u64) -> Result<Buffer> {
        match self.slots.get(self.next) {
            Some((slot, traced)) if *traced == size => {
                self.next += 1;
                Ok(Buffer::in_bank(self.banks[slot.bank].clone(), slot.offset, size))
            }
            other => bail!(
                Internal,
                "a planned step allocates {size} bytes where its trace had {:?}: it must do the same every time",
                other.map(|(_, traced)| *traced)
            ),
        }
    }
}
