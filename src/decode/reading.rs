//! Collects what a submit reads back.

use std::ops::Range;

use futures_util::FutureExt;

use super::flight::{Flight, Part, PartKind};
use super::scheduler::Member;
use crate::error::Result;
use crate::tensor::{Context, Tensor};

/// What a submit reads back.
#[derive(Default)]
pub struct Reading {
    ranges: Vec<(Tensor, Range<usize>)>,
    parts: Vec<Part>,
}

impl Reading {
    pub fn add<'a>(
        &mut self,
        member: &Member,
        kind: PartKind,
        forwards: usize,
        ranges: impl IntoIterator<Item = (&'a Tensor, Range<usize>)>,
    ) {
        let before = self.ranges.len();
        self.ranges.extend(ranges.into_iter().map(|(tensor, range)| (tensor.clone(), range)));
        let pieces = self.ranges.len() - before;
        self.parts.push(Part { id: member.id, epoch: member.sequence.epoch, kind, forwards, pieces });
    }

    pub fn start(self, context: &Context, steps: usize) -> Result<Option<Flight>> {
        if self.parts.is_empty() {
            return Ok(None);
        }
        let ranges: Vec<_> = self.ranges.iter().map(|(tensor, range)| (tensor, range.clone())).collect();
        let bytes = context.start_readback(&ranges)?.bytes().boxed_local();
        Ok(Some(Flight { bytes, parts: self.parts, steps, is_waited_for: false }))
    }
}
