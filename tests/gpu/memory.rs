//! A GPU without room: what fails, what does not, and what is left.

use std::time::Duration;

use futures_util::FutureExt;
use pollster::block_on;
use rillm::gpu::{Buffer, Device, DeviceOptions, SimulatedGpu};
use rillm::{Code, Result};

use super::runtime::{device, mix, plain, words};

/// Beyond the limit a step fails by itself: nothing of it runs, nobody else hears of it, and none of its buffers is used again.
#[test]
fn a_step_without_room_fails_alone() {
    let device = plain();
    let words = |device: &Device, buffer: &Buffer| -> Vec<u32> {
        let bytes = block_on(device.read(&[buffer.slice()]).unwrap().bytes()).unwrap();
        bytemuck::pod_collect_to_vec(&bytes[0])
    };
    let (source, kept) = (device.buffer(8192, "source").unwrap(), device.buffer(8192, "kept").unwrap());
    device.write(&source, 0, bytemuck::cast_slice(&[5u32; 2048])).unwrap();
    device.write(&kept, 0, bytemuck::cast_slice(&[1u32; 2048])).unwrap();
    mix(&device, &source, &kept, 2048, 0).unwrap();
    assert_eq!(words(&device, &kept), [8; 2048]);
    device.trim();
    block_on(device.sync()).unwrap();
    let live = device.memory().live_bytes;
    // Recorded before, so it is none of the step's.
    mix(&device, &source, &kept, 2048, 1).unwrap();
    for room in [0, 8192, 20_000] {
        device.set_memory_limit(Some(live + room));
        let step = || {
            let new: Vec<Buffer> = (0..4).map(|_| device.buffer(8192, "new")).collect::<Result<_>>()?;
            mix(&device, &source, &new[0], 2048, 0)?;
            // What the step does with buffers of others does not happen either.
            mix(&device, &new[0], &kept, 2048, 0)?;
            mix(&device, &new[3], &kept, 2048, 7)?;
            Ok(new)
        };
        let error = block_on(device.attempt("four buffers", step)).err().unwrap();
        assert_eq!(error.code(), Code::OutOfMemory, "{error}");
        assert!(error.message().contains("four buffers") && error.message().contains("0.0 MB"), "{error}");
        assert!(device.refused_bytes() >= 4 * 8192, "{}", device.refused_bytes());
        block_on(device.sync()).unwrap();
        assert_eq!(words(&device, &kept), [8 * 3 + 5 + 1; 2048], "with room for {room}");
        block_on(device.free_unused()).unwrap();
        assert!(device.memory().live_bytes <= live + 4096, "{:?}", device.memory());
    }
    device.set_memory_limit(None);
    let step = || {
        let new = device.buffer(8192, "new")?;
        device.write(&new, 0, bytemuck::cast_slice(&[2u32; 2048]))?;
        mix(&device, &source, &new, 2048, 0)?;
        Ok(new)
    };
    let new = block_on(device.attempt("one buffer", step)).unwrap();
    assert_eq!(words(&device, &new), [11; 2048]);
}

/// A step may get a buffer of another of which it is not known yet that it found no room. It made none itself, and is told nevertheless.
#[test]
fn a_step_with_a_broken_buffer_of_another_is_short_too() {
    let gpu = SimulatedGpu::new(|_| Duration::ZERO);
    let device = device(DeviceOptions { simulated_gpu: Some(gpu), ..Default::default() });
    let source = device.buffer(8192, "source").unwrap();
    device.write(&source, 0, bytemuck::cast_slice(&[5u32; 2048])).unwrap();
    let step = || mix(&device, &source, &device.buffer(8192, "new")?, 2048, 0);
    block_on(device.sync()).unwrap();
    device.set_memory_limit(Some(device.memory().live_bytes + 4096));
    let (first, second) = (device.attempt("the first", step), device.attempt("the second", step));
    let ended = block_on(futures_util::future::join(first, second));
    for result in [ended.0, ended.1] {
        assert_eq!(result.unwrap_err().code(), Code::OutOfMemory);
    }
    block_on(device.sync()).unwrap();
    device.set_memory_limit(None);
    block_on(device.attempt("the third", step)).unwrap();
    block_on(device.sync()).unwrap();
}

/// A step that nobody waits for any more before it is known whether there was room: what it made is gone, and what others made and wrote meanwhile is
/// theirs.
#[test]
fn a_step_that_is_dropped_while_undecided_takes_nothing_of_others_along() {
    for has_room in [true, false] {
        let gpu = SimulatedGpu::new(|_| Duration::ZERO);
        let device = device(DeviceOptions { simulated_gpu: Some(gpu), ..Default::default() });
        let filled = |word: u32, n: usize| {
            let buffer = device.buffer(4 * n as u64, "filled").unwrap();
            device.write(&buffer, 0, bytemuck::cast_slice(&vec![word; n])).unwrap();
            buffer
        };
        let (source, kept) = (filled(5, 2048), filled(1, 2048));
        block_on(device.sync()).unwrap();
        let before = device.memory();
        let step = || {
            let new: Vec<Buffer> = (0..4).map(|_| device.buffer(8192, "new")).collect::<Result<_>>()?;
            device.write(&new[0], 0, bytemuck::cast_slice(&[2u32; 2048]))?;
            mix(&device, &source, &new[0], 2048, 0)?;
            // Makes the buffer of small writes.
            device.write(&new[1], 0, &[7; 16])?;
            mix(&device, &new[0], &kept, 2048, 7)?;
            Ok(new)
        };
        device.set_memory_limit((!has_room).then_some(before.live_bytes + 8192));
        let mut trying = Box::pin(device.attempt("four buffers", step));
        assert!((&mut trying).now_or_never().is_none(), "it must not be decided yet");
        device.set_memory_limit(None);
        let other = filled(2, 4096);
        mix(&device, &source, &other, 2048, 0).unwrap();
        device.write(&other, 0, bytemuck::cast_slice(&[9u32; 4])).unwrap();
        drop(trying);
        block_on(device.sync()).unwrap();
        assert_eq!(words(&device, &other, 4096), [vec![9; 4], vec![11; 2044], vec![2; 2048]].concat());
        let of_step = |before: u32| before * 3 + (2 * 3 + 5) + 7;
        let was = words(&device, &kept, 2048);
        assert!(was == [1; 2048] || has_room && was == [of_step(1); 2048], "it runs as a whole or not at all: {was:?}");
        drop(other);
        let reused = device.stats().buffers_reused;
        let again = filled(3, 4096);
        assert_eq!(device.stats().buffers_reused, reused + 1, "what others made is used again");
        drop(again);
        block_on(device.free_unused()).unwrap();
        let left = device.memory().live_bytes;
        assert!(left <= before.live_bytes + 4096, "{left} bytes, {} before", before.live_bytes);
        block_on(device.attempt("again", step)).unwrap();
        assert_eq!(words(&device, &kept, 2048), [of_step(was[0]); 2048]);
    }
}

/// Outside of an attempt the next wait says it, and the one after that works.
#[test]
fn a_buffer_without_room_is_reported_by_the_next_wait() {
    let device = plain();
    let source = device.buffer(8192, "source").unwrap();
    device.write(&source, 0, bytemuck::cast_slice(&[5u32; 2048])).unwrap();
    block_on(device.sync()).unwrap();
    device.set_memory_limit(Some(device.memory().live_bytes));
    let lost = device.buffer(8192, "lost").unwrap();
    mix(&device, &source, &lost, 2048, 0).unwrap();
    let error = block_on(device.sync()).err().unwrap();
    assert_eq!(error.code(), Code::OutOfMemory, "{error}");
    drop(lost);
    // A read-back needs memory too.
    let error = block_on(device.read(&[source.slice()]).unwrap().bytes()).err().unwrap();
    assert_eq!(error.code(), Code::OutOfMemory, "{error}");
    device.set_memory_limit(None);
    let found = device.buffer(8192, "found").unwrap();
    device.write(&found, 0, bytemuck::cast_slice(&[1u32; 2048])).unwrap();
    mix(&device, &source, &found, 2048, 0).unwrap();
    let bytes = block_on(device.read(&[found.slice()]).unwrap().bytes()).unwrap();
    assert_eq!(bytemuck::pod_collect_to_vec::<u8, u32>(&bytes[0]), [8; 2048]);
}

/// A recorded step whose arena finds no room is refused before anything of it runs.
#[test]
fn a_plan_without_room_is_refused() {
    let device = plain();
    let (source, target) = (device.buffer(8192, "source").unwrap(), device.buffer(8192, "target").unwrap());
    device.write(&source, 0, bytemuck::cast_slice(&[5u32; 2048])).unwrap();
    device.write(&target, 0, bytemuck::cast_slice(&[1u32; 2048])).unwrap();
    let step = || {
        let own = device.buffer(65_536, "own")?;
        mix(&device, &source, &own, 2048, 0)?;
        mix(&device, &own, &target, 2048, 0)
    };
    block_on(device.sync()).unwrap();
    device.set_memory_limit(Some(device.memory().live_bytes + 1000));
    let error = block_on(device.capture(step)).err().unwrap();
    assert_eq!(error.code(), Code::OutOfMemory, "{error}");
    assert_eq!(block_on(device.check_room("a step", step)).err().unwrap().code(), Code::OutOfMemory);
    device.set_memory_limit(None);
    block_on(device.check_room("a step", step)).unwrap();
    let before = device.memory().live_bytes;
    let (_, recording) = block_on(device.capture(step)).unwrap();
    assert!(device.memory().live_bytes >= before + 65_536 && recording.dispatches() == 2);
    block_on(device.sync()).unwrap();
}
