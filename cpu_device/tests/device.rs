//! The device through wgpu's interface.
#![cfg(not(target_arch = "wasm32"))]
#![allow(clippy::unwrap_used, reason = "a test that fails says so by a panic")]

use std::ops::Range;
use std::sync::{Arc, Mutex};

use rillm_cpu_device::{
    CpuKernel, Lent, Problem, Team, TeamAddress, TeamAttention, TeamFeedForward, TeamMatrix, is_cpu, next_is_of_team,
    pipeline, request,
};
use wgpu::{BufferUsages, wgt};

/// Adds what is read to what is written, byte by byte.
struct Add;

impl CpuKernel for Add {
    fn run(&self, bound: Vec<Lent<'_>>, _: Option<&Arc<dyn Team>>) -> Result<(), Problem> {
        let mut sum = [0u8; 64];
        for lent in &bound {
            if let Lent::Read(bytes, _) = lent {
                sum.iter_mut().zip(bytes.iter()).for_each(|(sum, byte)| *sum += byte);
            }
        }
        for lent in bound {
            match lent {
                Lent::Write(mut written) => {
                    let bytes = written.bytes_mut();
                    bytes.copy_from_slice(&sum[..bytes.len()]);
                }
                Lent::Team(bytes) => bytes.team().write(bytes.at(), &[bytes.size() as u8])?,
                Lent::Read(..) => {}
            }
        }
        Ok(())
    }
}

struct Gpu {
    device: wgpu::Device,
    queue: wgpu::Queue,
}

impl Gpu {
    fn new() -> Self {
        Self::with(None)
    }

    fn with(team: Option<Arc<dyn Team>>) -> Self {
        let (device, queue) = request(team);
        assert!(is_cpu(&device));
        Self { device, queue }
    }

    /// A buffer of zeros, and what went wrong.
    fn empty(&self, size: u64) -> (wgpu::Buffer, Option<wgpu::Error>) {
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_DST | BufferUsages::COPY_SRC | BufferUsages::MAP_READ;
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let buffer =
            self.device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false });
        (buffer, now(scope.pop()))
    }

    fn buffer(&self, bytes: &[u8]) -> wgpu::Buffer {
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_DST | BufferUsages::COPY_SRC | BufferUsages::MAP_READ;
        let size = bytes.len() as u64;
        let buffer =
            self.device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false });
        self.queue.write_buffer(&buffer, 0, bytes);
        buffer
    }

    /// Runs `Add`; what went wrong.
    fn add(&self, bound: &[(&wgpu::Buffer, Range<u64>, bool)]) -> Option<String> {
        let entries: Vec<wgpu::BindGroupLayoutEntry> = bound
            .iter()
            .zip(0..)
            .map(|((_, _, is_written), binding)| wgpu::BindGroupLayoutEntry {
                binding,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty: wgpu::BufferBindingType::Storage { read_only: !is_written },
                    has_dynamic_offset: false,
                    min_binding_size: None,
                },
                count: None,
            })
            .collect();
        let Self { device, queue } = self;
        let layout =
            device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries });
        let of_pipeline = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&layout)],
            immediate_size: 0,
        });
        let entries: Vec<wgpu::BindGroupEntry<'_>> = bound
            .iter()
            .zip(0..)
            .map(|((buffer, range, _), binding)| wgpu::BindGroupEntry {
                binding,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer,
                    offset: range.start,
                    size: wgpu::BufferSize::new(range.end - range.start),
                }),
            })
            .collect();
        let group =
            device.create_bind_group(&wgpu::BindGroupDescriptor { label: None, layout: &layout, entries: &entries });
        let scope = device.push_error_scope(wgpu::ErrorFilter::Validation);
        let pipeline = pipeline(device, "add", &of_pipeline, Arc::new(Add)).unwrap();
        let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups(1, 1, 1);
        drop(pass);
        queue.submit([encoder.finish()]);
        now(scope.pop()).map(|error| error.to_string())
    }

    fn bytes(&self, buffer: &wgpu::Buffer) -> Vec<u8> {
        let told = Arc::new(Mutex::new(None));
        let sink = told.clone();
        buffer.slice(..).map_async(wgpu::MapMode::Read, move |result| *sink.lock().unwrap() = Some(result.is_ok()));
        assert_eq!(*told.lock().unwrap(), None, "nothing is called within the call");
        self.device.poll(wgt::PollType::wait_indefinitely()).unwrap();
        assert_eq!(*told.lock().unwrap(), Some(true));
        let bytes = buffer.slice(..).get_mapped_range().unwrap().to_vec();
        buffer.unmap();
        bytes
    }
}

/// What a future that waits for nothing gives.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("it waits"),
    }
}

#[test]
fn parts_of_one_buffer_are_lent_together() {
    let gpu = Gpu::new();
    let one = gpu.buffer(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0, 0, 0]);
    assert_eq!(gpu.add(&[(&one, 8..12, true), (&one, 0..4, false), (&one, 2..6, false)]), None);
    assert_eq!(gpu.bytes(&one)[..12], [1, 2, 3, 4, 5, 6, 7, 8, 1 + 3, 2 + 4, 3 + 5, 4 + 6]);
    let other = gpu.buffer(&[1; 16]);
    assert_eq!(gpu.add(&[(&other, 0..4, false), (&one, 0..4, true), (&other, 0..4, false)]), None);
    assert_eq!(gpu.bytes(&one)[..5], [2, 2, 2, 2, 5]);
}

#[test]
fn what_is_written_overlaps_nothing_and_lies_inside() {
    let gpu = Gpu::new();
    let one = gpu.buffer(&[0; 32]);
    for (first, second) in [(0..8, 4..12), (4..12, 0..8), (0..8, 0..8), (0..16, 4..8), (4..8, 0..16)] {
        for writes in [[true, false], [false, true], [true, true]] {
            let error = gpu.add(&[(&one, first.clone(), writes[0]), (&one, second.clone(), writes[1])]);
            assert!(error.is_some_and(|error| error.contains("overlaps")), "{first:?} {second:?}");
        }
    }
    assert!(gpu.add(&[(&one, 0..16, false), (&one, 2..4, false), (&one, 8..12, true)]).is_some());
    assert!(gpu.add(&[(&one, 28..33, true)]).is_some_and(|error| error.contains("ends at byte 33")));
    assert_eq!(gpu.add(&[(&one, 0..4, true), (&one, 4..8, true), (&one, 8..32, false)]), None);
}

#[test]
fn errors_reach_the_innermost_scope_of_their_kind_or_the_handler() {
    let gpu = Gpu::new();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let sink = heard.clone();
    gpu.device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| sink.lock().unwrap().push(error.to_string())));
    let lot =
        wgpu::BufferDescriptor { label: None, size: 1 << 60, usage: BufferUsages::STORAGE, mapped_at_creation: false };
    let (outer, memory) = (
        gpu.device.push_error_scope(wgpu::ErrorFilter::Validation),
        gpu.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory),
    );
    let _ = gpu.device.create_buffer(&lot);
    let _ = gpu.device.create_buffer(&wgpu::BufferDescriptor { usage: BufferUsages::empty(), size: 16, ..lot.clone() });
    assert!(matches!(now(memory.pop()), Some(wgpu::Error::OutOfMemory { .. })));
    assert!(matches!(now(outer.pop()), Some(wgpu::Error::Validation { .. })));
    assert!(heard.lock().unwrap().is_empty());
    let _ = gpu.device.create_buffer(&lot);
    assert_eq!(heard.lock().unwrap().len(), 1);
}

#[test]
fn a_destroyed_device_tells_and_runs_nothing() {
    let gpu = Gpu::new();
    let lost = Arc::new(Mutex::new(0));
    let sink = lost.clone();
    gpu.device.set_device_lost_callback(move |_, _| *sink.lock().unwrap() += 1);
    let (one, other) = (gpu.buffer(&[3; 16]), gpu.buffer(&[0; 16]));
    gpu.device.destroy();
    gpu.device.destroy();
    assert_eq!(gpu.add(&[(&one, 0..16, false), (&other, 0..16, true)]), None);
    let told = Arc::new(Mutex::new(None));
    let sink = told.clone();
    other.slice(..).map_async(wgpu::MapMode::Read, move |result| *sink.lock().unwrap() = Some(result.is_ok()));
    gpu.device.poll(wgt::PollType::Poll).unwrap();
    assert_eq!((*lost.lock().unwrap(), *told.lock().unwrap()), (1, Some(false)));
}

/// A memory of 100 bytes, and what is written there.
#[derive(Debug, Default)]
struct Small {
    held: Mutex<Vec<(TeamAddress, usize)>>,
    written: Mutex<Vec<(TeamAddress, Vec<u8>)>>,
}

impl Team for Small {
    fn allocate(&self, bytes: usize) -> Option<TeamAddress> {
        let mut held = self.held.lock().unwrap();
        let sum: usize = held.iter().map(|(_, bytes)| bytes).sum();
        if sum + bytes > 100 {
            return None;
        }
        let at = 16 * (held.len() as TeamAddress + 1);
        held.push((at, bytes));
        Some(at)
    }

    fn release(&self, at: TeamAddress, bytes: usize) {
        let mut held = self.held.lock().unwrap();
        let place = held.iter().position(|one| *one == (at, bytes)).unwrap();
        held.remove(place);
    }

    fn write(&self, at: TeamAddress, bytes: &[u8]) -> Result<(), Problem> {
        self.written.lock().unwrap().push((at, bytes.to_vec()));
        Ok(())
    }

    fn read(&self, _: TeamAddress, _: &mut [u8]) -> Result<(), Problem> {
        Ok(())
    }

    fn pack(&self, _: TeamMatrix, _: usize, _: usize, _: &[u8]) -> Result<(), Problem> {
        Ok(())
    }

    fn multiply(&self, _: TeamMatrix, _: Range<usize>, _: &[f32], _: &mut [f32]) -> Result<(), Problem> {
        Ok(())
    }

    fn attend(&self, _: TeamAttention<'_>, _: &mut [f32], _: &mut [f32]) -> Result<(), Problem> {
        Ok(())
    }

    fn feed_forward(&self, _: TeamFeedForward<'_>, _: &mut [f32]) -> Result<(), Problem> {
        Ok(())
    }

    fn row(&self, _: TeamMatrix, _: usize, _: &mut [f32]) -> Result<(), Problem> {
        Ok(())
    }

    fn threads(&self) -> usize {
        1
    }

    fn most_bytes(&self) -> u64 {
        100
    }
}

#[test]
fn one_buffer_is_in_a_teams_memory_and_only_kernels_use_it() {
    let team = Arc::new(Small::default());
    let gpu = Gpu::with(Some(team.clone()));
    next_is_of_team(&gpu.device);
    let (weight, error) = gpu.empty(48);
    assert!(error.is_none());
    // The next one is not.
    let own = gpu.buffer(&[7; 16]);
    assert_eq!(*team.held.lock().unwrap(), [(16, 48)]);
    assert_eq!(gpu.add(&[(&weight, 0..48, true), (&own, 0..4, false)]), None);
    assert_eq!(gpu.add(&[(&weight, 0..48, false), (&weight, 0..48, false), (&own, 4..8, true)]), None);
    assert_eq!(*team.written.lock().unwrap(), vec![(16, vec![48]); 3]);
    assert!(gpu.add(&[(&weight, 0..16, false)]).is_some_and(|error| error.contains("a part of a buffer in a team's")));
    // Nobody else writes there.
    let scope = gpu.device.push_error_scope(wgpu::ErrorFilter::Validation);
    gpu.queue.write_buffer(&weight, 0, &[1; 4]);
    assert!(now(scope.pop()).is_some());
    next_is_of_team(&gpu.device);
    let (none, error) = gpu.empty(64);
    assert!(matches!(error, Some(wgpu::Error::OutOfMemory { .. })));
    drop(none);
    weight.destroy();
    assert_eq!(*team.held.lock().unwrap(), []);
    next_is_of_team(&gpu.device);
    let (weight, error) = gpu.empty(100);
    assert!(error.is_none());
    drop(weight);
    assert_eq!(*team.held.lock().unwrap(), [], "without a call as well");
}

#[test]
fn without_a_team_its_buffers_are_like_others() {
    let gpu = Gpu::new();
    next_is_of_team(&gpu.device);
    let buffer = gpu.buffer(&[1, 2, 3, 4]);
    assert_eq!(gpu.bytes(&buffer), [1, 2, 3, 4]);
}
