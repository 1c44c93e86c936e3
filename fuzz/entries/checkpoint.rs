//! Checkpoints of trainings, as they come and with the sums that they ought to have, without which hardly anything gets past the first one.
//! What a checkpoint is said to hold lies in its file.

use rillm::model::source::MemorySource;
use rillm::train::read_checkpoint;

/// Before the header: `RILLMTRN`, a version and the header's length.
const BEFORE: usize = 16;
const SUM: usize = 4;

pub fn run(bytes: &[u8]) {
    read(bytes);
    if let Some(bytes) = summed(bytes) {
        read(&bytes);
    }
}

fn read(bytes: &[u8]) {
    let source = MemorySource::new(bytes.to_vec()).with_name("training.checkpoint");
    if let Ok((step, numbers)) = pollster::block_on(read_checkpoint(&source)) {
        assert!(step <= numbers && 4 * numbers + BEFORE + 2 * SUM <= bytes.len());
    }
}

/// The same with the right sums after the header and at the end, if there is a header.
fn summed(bytes: &[u8]) -> Option<Vec<u8>> {
    let length = u32::from_le_bytes(bytes.get(BEFORE - 4..BEFORE)?.try_into().ok()?) as usize;
    let (header, rest) = bytes.split_at_checked(BEFORE.checked_add(length)?)?;
    let numbers = rest.get(SUM..rest.len().checked_sub(SUM)?)?;
    let sum = |bytes: &[u8]| crc32fast::hash(bytes).to_le_bytes();
    Some([header, &sum(header), numbers, &sum(numbers)].concat())
}
