//! The GPU runtime on a native device: order, caches, arena, read-back, counters, and what happens on bad use.

use std::time::Duration;

use crate::support::skip;
use pollster::block_on;
use rillm::gpu::{
    Binding, Buffer, BufferSlice, CacheSizes, Define, Device, DeviceOptions, KernelUse, Recording, Shader,
    SimulatedGpu, SimulatedSubmit, SimulatedWork, Stats, Template,
};
use rillm::tensor::Rng;
use rillm::{Code, Result};

pub fn device(options: DeviceOptions) -> Device {
    block_on(Device::request(&options))
        .unwrap_or_else(|error| panic!("native tests need a Vulkan driver (on Debian: mesa-vulkan-drivers): {error}"))
}

pub fn plain() -> Device {
    device(DeviceOptions::default())
}

/// `target[i] = target[i] · 3 + source[i] + k` over `n` words.
const MIX: &str = "
struct Params { n: u32, k: u32 }
@group(0) @binding(0) var<storage, read> source: array<u32>;
@group(0) @binding(1) var<storage, read_write> goal: array<u32>;
@group(0) @binding(2) var<uniform> params: Params;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < params.n {
        goal[id.x] = goal[id.x] * 3u + source[id.x] + params.k;
    }
}";

pub fn mix(device: &Device, source: &Buffer, target: &Buffer, n: usize, k: u32) -> Result<()> {
    let shader = Shader { label: "mix", template: Template::Static(MIX), modules: &[], defines: &[] };
    let params = [n as u32, k];
    let bindings = [
        Binding::Read(0, source.slice()),
        Binding::ReadWrite(1, target.slice()),
        Binding::Uniform(2, bytemuck::cast_slice(&params)),
    ];
    device.dispatch(&shader, &bindings, [n.div_ceil(64) as u32, 1, 1])
}

fn mix_on_cpu(source: &[u32], target: &mut [u32], n: usize, k: u32) {
    for (target, source) in target.iter_mut().zip(source).take(n) {
        *target = target.wrapping_mul(3).wrapping_add(*source).wrapping_add(k);
    }
}

pub fn words(device: &Device, buffer: &Buffer, n: usize) -> Vec<u32> {
    let slice = BufferSlice { size: n as u64 * 4, ..buffer.slice() };
    let bytes = block_on(device.read(&[slice]).unwrap().bytes()).unwrap();
    bytemuck::pod_collect_to_vec(&bytes[0])
}

fn random_words(rng: &mut Rng, n: usize) -> Vec<u32> {
    (0..n).map(|_| rng.next_u64() as u32).collect()
}

/// A buffer on the GPU and what must be in it.
struct Twin {
    gpu: Buffer,
    cpu: Vec<u32>,
}

impl Twin {
    fn new(device: &Device, rng: &mut Rng) -> Self {
        // Some need the path of large writes, some share size classes.
        let n = [16, 64, 100, 256, 900, 1500][rng.below(6)];
        let cpu = random_words(rng, n);
        let gpu = device.buffer(n as u64 * 4, "twin").unwrap();
        device.write(&gpu, 0, bytemuck::cast_slice(&cpu)).unwrap();
        Self { gpu, cpu }
    }
}

/// Interleaved writes, dispatches, copies, frees and reads do what they would do one after the other.
fn program_order(device: &Device, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let mut rng = Rng(seed);
        let mut twins: Vec<Twin> = (0..3).map(|_| Twin::new(device, &mut rng)).collect();
        for step in 0..8 + rng.below(16) {
            let (a, b) = (rng.below(twins.len()), rng.below(twins.len()));
            match rng.below(12) {
                0..=4 if a != b => {
                    let n = 1 + rng.below(twins[a].cpu.len().min(twins[b].cpu.len()));
                    let k = rng.below(5) as u32;
                    mix(device, &twins[a].gpu, &twins[b].gpu, n, k).unwrap();
                    let source = twins[a].cpu.clone();
                    mix_on_cpu(&source, &mut twins[b].cpu, n, k);
                }
                5 | 6 => {
                    let length = twins[a].cpu.len();
                    let start = rng.below(length);
                    let data_length = 1 + rng.below(length - start);
                    let data = random_words(&mut rng, data_length);
                    device.write(&twins[a].gpu, start as u64 * 4, bytemuck::cast_slice(&data)).unwrap();
                    twins[a].cpu[start..start + data.len()].copy_from_slice(&data);
                }
                7 | 8 => {
                    let n = 1 + rng.below(twins[a].cpu.len().min(twins[b].cpu.len()) / 2);
                    let from = rng.below(twins[a].cpu.len() - n + 1);
                    let to = rng.below(twins[b].cpu.len() - n + 1);
                    let slice = |twin: &Twin, at: usize| BufferSlice {
                        buffer: twin.gpu.clone(),
                        offset: at as u64 * 4,
                        size: n as u64 * 4,
                    };
                    device.copy(&slice(&twins[a], from), &slice(&twins[b], to)).unwrap();
                    let data = twins[a].cpu[from..from + n].to_vec();
                    twins[b].cpu[to..to + n].copy_from_slice(&data);
                }
                9 if twins.len() > 2 => drop(twins.swap_remove(a)),
                9 | 10 if twins.len() < 6 => twins.push(Twin::new(device, &mut rng)),
                11 if step % 3 == 0 => {
                    let got = words(device, &twins[a].gpu, twins[a].cpu.len());
                    assert_eq!(got, twins[a].cpu, "seed {seed}, step {step}");
                }
                _ => {}
            }
        }
        let slices: Vec<BufferSlice> =
            twins.iter().map(|twin| BufferSlice { size: twin.cpu.len() as u64 * 4, ..twin.gpu.slice() }).collect();
        let got = block_on(device.read(&slices).unwrap().bytes()).unwrap();
        for (got, twin) in got.iter().zip(&twins) {
            let got: Vec<u32> = bytemuck::pod_collect_to_vec(got);
            assert_eq!(got, twin.cpu, "seed {seed}");
        }
    }
}

#[test]
fn subgroups_are_used_where_their_lanes_follow_the_indices() {
    // Mesa's software driver and every GPU driver known fill subgroups in order; `without_subgroups` is for comparison.
    let capabilities = plain().capabilities().clone();
    assert!(capabilities.subgroups.is_some_and(|(smallest, largest)| smallest >= 4 && largest >= smallest));
    let without = device(DeviceOptions { without_subgroups: true, ..Default::default() });
    assert!(without.capabilities().subgroups.is_none());
}

#[test]
fn ten_thousand_sequences_run_in_program_order() {
    let device = plain();
    program_order(&device, 0..10_000);
    let stats = device.stats();
    assert!(stats.staged_writes > 10_000 && stats.buffers_reused > 10_000, "the paths were taken: {stats:?}");
    assert!(stats.uniforms.entries <= 512 && stats.bind_groups.entries <= 256, "{stats:?}");
}

/// With caches so small that they evict all the time, or off, and with early submits, the order is the same.
#[test]
fn order_does_not_depend_on_caches_and_limits() {
    for (uniforms, bind_groups, max_batch, debug) in
        [(0, 0, 0, false), (1, 1, 0, false), (3, 2, 5, false), (2, 4, 1, false), (512, 256, 0, true)]
    {
        let caches = CacheSizes { uniforms, bind_groups, staging: 1 };
        let device = device(DeviceOptions { caches, max_batch, debug, ..Default::default() });
        program_order(&device, 20_000..20_300);
        let stats = device.stats();
        assert!(stats.uniforms.entries <= uniforms as u64, "{stats:?}");
        assert!(stats.bind_groups.entries <= bind_groups as u64, "{stats:?}");
        if debug || max_batch == 1 {
            assert!(stats.submits >= stats.dispatches, "each dispatch is submitted by itself: {stats:?}");
        }
    }
}

/// Cut into submits and held back, as on GPUs that are fast or much too slow, and with caches of any size, the order is the same.
#[test]
fn order_does_not_depend_on_the_pace() {
    for (uniforms, bind_groups, microseconds) in [(512, 256, 0), (512, 256, 700), (0, 0, 3000), (3, 2, 9000)] {
        let gpu = SimulatedGpu::new(move |work| match work {
            SimulatedWork::Dispatch { workgroups, .. } => Duration::from_micros(microseconds * workgroups),
            SimulatedWork::Copy { .. } | SimulatedWork::Write { .. } => Duration::ZERO,
        });
        let caches = CacheSizes { uniforms, bind_groups, staging: 1 };
        let device = device(DeviceOptions { caches, simulated_gpu: Some(gpu.clone()), ..Default::default() });
        device.set_paced(true);
        program_order(&device, 30_000..30_300);
        // The first ones teach what work costs.
        gpu.take_submits();
        program_order(&device, 30_300..30_500);
        let submits = gpu.take_submits();
        let is_short = |submit: &SimulatedSubmit| submit.time <= submit.longest.max(Duration::from_millis(12));
        assert!(submits.iter().all(is_short), "{submits:?}");
        // What waits is sent when nobody wants it to wait any more.
        let (source, target) = (device.buffer(256, "source").unwrap(), device.buffer(256, "target").unwrap());
        device.write(&source, 0, &[1; 256]).unwrap();
        device.write(&target, 0, &[0; 256]).unwrap();
        let before = words(&device, &target, 64);
        for _ in 0..40 {
            mix(&device, &source, &target, 64, 1).unwrap();
        }
        device.flush();
        device.set_paced(false);
        let mut wanted = before;
        for _ in 0..40 {
            mix_on_cpu(&[0x0101_0101; 64], &mut wanted, 64, 1);
        }
        assert_eq!(words(&device, &target, 64), wanted);
    }
}

/// What is held back can be taken back, and read-backs of it can be dropped.
#[test]
fn what_is_held_back_can_be_given_up() {
    let gpu = SimulatedGpu::new(|_| Duration::from_millis(5));
    let device = device(DeviceOptions { simulated_gpu: Some(gpu.clone()), ..Default::default() });
    device.set_paced(true);
    let (zero, counter) = (device.buffer(256, "zero").unwrap(), device.buffer(256, "counter").unwrap());
    for buffer in [&zero, &counter] {
        device.write(buffer, 0, &[0; 256]).unwrap();
    }
    let count = |times: usize| (0..times).try_for_each(|_| mix(&device, &zero, &counter, 1, 1)).unwrap();
    let counted = |times: usize| (0..times).fold(0u32, |value, _| value.wrapping_mul(3).wrapping_add(1));
    count(3);
    assert_eq!(words(&device, &counter, 1), [counted(3)]);

    let first = device.submitted();
    count(20);
    device.flush();
    gpu.take_submits();
    assert!(!block_on(device.sent_while((first, device.submitted()), &|| false)).unwrap());
    let value = words(&device, &counter, 1)[0];
    let ran = (3..23).find(|times| counted(*times) == value).expect("a part of them, in order");
    assert!(ran < 8, "{ran} of 20 ran");

    // Read-backs that nobody waits for any more leave their staging buffers to others.
    let slice = BufferSlice { size: 4, ..counter.slice() };
    for _ in 0..50 {
        count(1);
        drop(device.read(std::slice::from_ref(&slice)).unwrap());
    }
    count(1);
    assert_eq!(words(&device, &counter, 1), [counted(ran + 51)]);
    let last = device.submitted();
    assert!(block_on(device.sent_while((last, last), &|| false)).unwrap(), "nothing was left to take back");

    // A device that is destroyed forgets what waits, and who waits for it hears.
    count(20);
    let reading = device.read(&[slice]).unwrap();
    device.destroy();
    assert_eq!(block_on(reading.bytes()).unwrap_err().code(), Code::Disposed);
}

#[test]
fn everything_between_two_flushes_is_one_submit_and_one_pass() {
    let device = plain();
    let (a, b) = (device.buffer(4096, "a").unwrap(), device.buffer(4096, "b").unwrap());
    let count = |work: &dyn Fn()| {
        device.reset_stats();
        work();
        device.stats()
    };
    let stats = count(&|| {
        for k in 0..100 {
            mix(&device, &a, &b, 64, k % 3).unwrap();
            // Freed at once: no reason to submit.
            drop(device.buffer(20 << 20, "short-lived").unwrap());
        }
        device.flush();
    });
    assert_eq!((stats.dispatches, stats.encoders, stats.passes, stats.submits), (100, 1, 1, 1));
    assert_eq!(stats.flushes.explicit, 1);

    let stats = count(&|| {
        mix(&device, &a, &b, 64, 0).unwrap();
        device.write(&a, 0, &[1; 64]).unwrap();
        mix(&device, &a, &b, 64, 0).unwrap();
        device.flush();
    });
    assert_eq!((stats.submits, stats.passes, stats.staged_writes), (1, 2, 1), "a small write breaks the pass alone");

    let stats = count(&|| {
        mix(&device, &a, &b, 64, 0).unwrap();
        for _ in 0..65 {
            device.write(&a, 0, &[1; 64]).unwrap();
        }
        device.flush();
    });
    assert_eq!((stats.flushes.pending_writes, stats.staged_writes), (1, 64), "64 may be pending");

    let large = vec![0u8; 8192];
    let c = device.buffer(8192, "c").unwrap();
    let stats = count(&|| {
        mix(&device, &a, &b, 64, 0).unwrap();
        device.write(&c, 0, &large).unwrap();
        device.flush();
    });
    assert_eq!((stats.flushes.write, stats.submits), (1, 1));
}

#[test]
fn the_batch_limit_submits_early() {
    let device = device(DeviceOptions { max_batch: 10, ..Default::default() });
    let (a, b) = (device.buffer(256, "a").unwrap(), device.buffer(256, "b").unwrap());
    for _ in 0..35 {
        mix(&device, &a, &b, 64, 0).unwrap();
    }
    device.flush();
    let stats = device.stats();
    assert_eq!((stats.submits, stats.flushes.batch_limit, stats.flushes.explicit), (4, 3, 1));
}

#[test]
fn sync_after_a_readback_asks_nothing_of_the_gpu() {
    let device = plain();
    let (a, b) = (device.buffer(256, "a").unwrap(), device.buffer(256, "b").unwrap());
    mix(&device, &a, &b, 64, 1).unwrap();
    block_on(device.sync()).unwrap();
    assert_eq!(device.stats().syncs_without_wait, 0);
    words(&device, &b, 4);
    block_on(device.sync()).unwrap();
    assert_eq!(device.stats().syncs_without_wait, 1, "the read-back has told that all is done");
    // One that is still in flight will tell.
    let flight = device.read(&[a.slice()]).unwrap();
    block_on(device.sync()).unwrap();
    assert_eq!(device.stats().syncs_without_wait, 2);
    block_on(flight.bytes()).unwrap();
    // One that was dropped tells nothing; the wait still ends.
    mix(&device, &a, &b, 64, 1).unwrap();
    drop(device.read(&[a.slice()]).unwrap());
    block_on(device.sync()).unwrap();
    assert_eq!(device.stats().syncs, 4);
}

#[test]
fn readbacks_of_odd_lengths_are_cut_right() {
    let device = plain();
    let bytes: Vec<u8> = (0..=255).cycle().take(4096).collect();
    let buffer = device.buffer(4096, "bytes").unwrap();
    device.write(&buffer, 0, &bytes).unwrap();
    let cuts = [(0usize, 1usize), (4, 3), (8, 5), (100, 257), (0, 4096), (4092, 4), (16, 0)];
    let slices: Vec<BufferSlice> = cuts
        .iter()
        .map(|(offset, size)| BufferSlice { buffer: buffer.clone(), offset: *offset as u64, size: *size as u64 })
        .collect();
    device.reset_stats();
    let got = block_on(device.read(&slices).unwrap().bytes()).unwrap();
    let stats = device.stats();
    assert_eq!((stats.submits, stats.maps, stats.flushes.readback), (1, 1, 1));
    for ((offset, size), got) in cuts.iter().zip(got) {
        assert_eq!(got, bytes[*offset..offset + size]);
    }
}

#[test]
fn many_readbacks_in_flight_keep_their_bytes() {
    let device = plain();
    let counter = device.buffer(256, "counter").unwrap();
    let zero = device.buffer(256, "zero").unwrap();
    device.write(&counter, 0, &[0; 256]).unwrap();
    device.write(&zero, 0, &[0; 256]).unwrap();
    let mut expected = 0u32;
    let mut flights = std::collections::VecDeque::new();
    for k in 0..200u32 {
        mix(&device, &zero, &counter, 1, k % 7).unwrap();
        expected = expected.wrapping_mul(3).wrapping_add(k % 7);
        let slice = BufferSlice { size: 4, ..counter.slice() };
        flights.push_back((device.read(&[slice]).unwrap(), expected));
        if flights.len() == 8 {
            let (flight, wanted) = flights.pop_front().unwrap();
            assert_eq!(block_on(flight.bytes()).unwrap()[0], wanted.to_le_bytes());
        }
        if k == 20 {
            device.reset_stats();
        }
    }
    assert_eq!(device.stats().buffers_created, 0, "the pool of small staging buffers holds what is in flight");
}

/// A step with tensors of its own: doubles what is in `x`, over several buffers that live one after the other.
fn chain(device: &Device, x: &Buffer, length: usize) -> Result<()> {
    let mut last = x.clone();
    for k in 0..length {
        let next = device.buffer(4096, "link")?;
        // The arena gives no zeros: `next = next · 3 + last` must not read what was there.
        copy_first(device, &last, &next)?;
        mix(device, &last, &next, 64, k as u32)?;
        last = next;
    }
    mix(device, &last, x, 64, 0)
}

fn copy_first(device: &Device, source: &Buffer, target: &Buffer) -> Result<()> {
    const COPY: &str = "
        @group(0) @binding(0) var<storage, read> source: array<u32>;
        @group(0) @binding(1) var<storage, read_write> goal: array<u32>;
        @compute @workgroup_size(64)
        fn main(@builtin(global_invocation_id) id: vec3<u32>) { goal[id.x] = source[id.x] + ADD; }";
    let shader = Shader {
        label: "copy_first",
        template: Template::Static(COPY),
        modules: &[],
        defines: &[("ADD", Define::U32(0))],
    };
    device.dispatch(&shader, &[Binding::Read(0, source.slice()), Binding::ReadWrite(1, target.slice())], [1, 1, 1])
}

fn chain_on_cpu(x: &mut [u32], length: usize) {
    let mut last = x.to_vec();
    for k in 0..length {
        let mut next = last.clone();
        mix_on_cpu(&last, &mut next, 64, k as u32);
        last = next;
    }
    mix_on_cpu(&last, x, 64, 0);
}

fn capture(device: &Device, x: &Buffer, length: usize) -> Recording {
    block_on(device.capture(|| chain(device, x, length))).unwrap().1
}

#[test]
fn a_plan_shares_bytes_and_replays_with_nothing_created() {
    let device = plain();
    let mut expected: Vec<u32> = (0..64).collect();
    let x = device.buffer(256, "x").unwrap();
    device.write(&x, 0, bytemuck::cast_slice(&expected)).unwrap();
    let plan = capture(&device, &x, 20);
    chain_on_cpu(&mut expected, 20);
    assert_eq!(words(&device, &x, 64), expected, "the step runs once when it is captured");
    assert_eq!(plan.dispatches(), 41);
    assert_eq!((plan.arena_bytes(), plan.arena_bytes_without_reuse()), (2 * 4096, 20 * 4096));
    let stats = device.stats();
    assert_eq!((stats.arena_bytes, stats.arena_bytes_without_reuse), (2 * 4096, 20 * 4096));

    device.reset_stats();
    let before = device.stats();
    for _ in 0..7 {
        device.replay(&plan).unwrap();
        chain_on_cpu(&mut expected, 20);
    }
    device.flush();
    let stats = device.stats();
    assert_eq!((stats.submits, stats.passes, stats.encoders, stats.dispatches), (1, 1, 1, 7 * 41));
    assert_nothing_made(&stats);
    assert_eq!((stats.live_buffers, stats.live_bytes), (before.live_buffers, before.live_bytes));
    assert_eq!(words(&device, &x, 64), expected);

    drop(plan);
    block_on(device.sync()).unwrap();
    let stats = device.stats();
    assert_eq!((stats.arena_bytes, stats.arena_bytes_without_reuse), (0, 0));
}

fn assert_nothing_made(stats: &Stats) {
    assert_eq!(
        (stats.buffers_created, stats.bind_groups_created, stats.pipelines_created, stats.uniform_writes),
        (0, 0, 0, 0)
    );
    assert_eq!((stats.bytes_uploaded, stats.staged_writes), (0, 0));
}

#[test]
fn an_evicted_uniform_is_written_again_in_place_of_a_new_one() {
    let caches = CacheSizes { uniforms: 8, bind_groups: 4, staging: 1 };
    let device = device(DeviceOptions { caches, ..Default::default() });
    let (x, y) = (device.buffer(256, "x").unwrap(), device.buffer(256, "y").unwrap());
    let source: Vec<u32> = (0..64).collect();
    let mut expected = vec![7; 64];
    device.write(&x, 0, bytemuck::cast_slice(&source)).unwrap();
    device.write(&y, 0, bytemuck::cast_slice(&expected)).unwrap();
    let mut run = |k: u32| {
        mix(&device, &x, &y, 64, k).unwrap();
        mix_on_cpu(&source, &mut expected, 64, k);
        // What is recorded holds its uniform, which can be evicted only after the submit.
        device.flush();
    };
    (0..20).for_each(&mut run);
    device.reset_stats();
    (20..120).for_each(&mut run);
    let stats = device.stats();
    assert_eq!((stats.buffers_created, stats.uniform_writes, stats.uniforms.evictions), (0, 100, 100), "{stats:?}");
    assert_eq!(words(&device, &y, 64), expected);
}

#[test]
fn a_plan_pins_what_it_uses() {
    let caches = CacheSizes { uniforms: 4, bind_groups: 4, staging: 1 };
    let device = device(DeviceOptions { caches, ..Default::default() });
    let mut expected: Vec<u32> = (0..64).map(|i| i * i).collect();
    let x = device.buffer(256, "x").unwrap();
    device.write(&x, 0, bytemuck::cast_slice(&expected)).unwrap();
    let plan = capture(&device, &x, 6);
    chain_on_cpu(&mut expected, 6);
    // Much that would push the plan's entries out, and reuse of whatever is free.
    program_order(&device, 50_000..50_050);
    device.reset_stats();
    device.replay(&plan).unwrap();
    chain_on_cpu(&mut expected, 6);
    assert_eq!(words(&device, &x, 64), expected);
    assert_eq!(device.stats().bind_groups_created, 0);
}

#[test]
fn what_outlives_a_step_keeps_its_bytes() {
    let device = plain();
    let x = device.buffer(256, "x").unwrap();
    let mut cpu: Vec<u32> = (0..64).collect();
    device.write(&x, 0, bytemuck::cast_slice(&cpu)).unwrap();
    let step = || {
        let kept = device.buffer(256, "kept")?;
        copy_first(&device, &x, &kept)?;
        chain(&device, &x, 5)?;
        Ok(kept)
    };
    let (kept, plan) = block_on(device.capture(step)).unwrap();
    for _ in 0..3 {
        assert_eq!(words(&device, &kept, 64), cpu, "the value before the step");
        chain_on_cpu(&mut cpu, 5);
        assert_eq!(words(&device, &x, 64), cpu);
        device.replay(&plan).unwrap();
    }
}

#[test]
fn pipelines_are_compiled_once_and_ahead() {
    let device = plain();
    let x = device.buffer(256, "x").unwrap();
    block_on(device.prepare(|| chain(&device, &x, 3))).unwrap();
    let stats = device.stats();
    assert_eq!((stats.pipelines_created, stats.dispatches, stats.submits), (2, 0, 0));
    for _ in 0..5 {
        chain(&device, &x, 3).unwrap();
        block_on(device.sync()).unwrap();
    }
    // The same final text from another address and under another label is the same pipeline.
    let text = format!("{MIX}\n");
    let shader = Shader { label: "again", template: Template::Text(&text), modules: &[], defines: &[] };
    let params = [64u32, 0];
    let other = device.buffer(256, "other").unwrap();
    let bindings = [
        Binding::Read(0, x.slice()),
        Binding::ReadWrite(1, other.slice()),
        Binding::Uniform(2, bytemuck::cast_slice(&params)),
    ];
    device.dispatch(&shader, &bindings, [1, 1, 1]).unwrap();
    assert_eq!(device.stats().pipelines_created, 2, "each unique text is compiled once");
}

#[test]
fn a_step_that_is_planned_must_not_write_or_differ() {
    let device = plain();
    let x = device.buffer(256, "x").unwrap();
    let written = block_on(device.capture(|| {
        mix(&device, &device.buffer(256, "y")?, &x, 64, 0)?;
        device.write(&x, 0, &[0; 4])
    }));
    assert_eq!(written.err().unwrap().code(), Code::Internal);
    let calls = std::cell::Cell::new(0);
    let differs = block_on(device.capture(|| {
        calls.set(calls.get() + 1);
        device.buffer(256 * calls.get(), "grows")
    }));
    assert_eq!(differs.err().unwrap().code(), Code::Internal);
    // And the device goes on.
    mix(&device, &device.buffer(256, "y").unwrap(), &x, 64, 0).unwrap();
    block_on(device.sync()).unwrap();
}

#[test]
fn freed_memory_is_freed_when_the_gpu_is_done() {
    let device = plain();
    block_on(device.sync()).unwrap();
    let before = device.stats();
    // Not kept for reuse, so that each is destroyed.
    let count = 6;
    for _ in 0..count {
        let large = device.lasting_buffer(65 << 20, "large").unwrap();
        mix(&device, &large, &device.buffer(256, "small").unwrap(), 64, 1).unwrap();
    }
    block_on(device.sync()).unwrap();
    device.trim();
    block_on(device.sync()).unwrap();
    let stats = device.stats();
    assert!(stats.deferred_frees >= count, "{stats:?}");
    assert_eq!(stats.pooled_bytes, 0);
    assert!(stats.live_bytes - before.live_bytes < 1 << 20, "{stats:?}");
}

/// More than what may wait for reuse, in sizes that take turns: what had to go is the next one that is asked for, and the GPU is not done with it.
#[test]
fn what_is_recorded_in_one_go_takes_each_size_once() {
    let device = plain();
    block_on(device.sync()).unwrap();
    let before = device.stats();
    let small = device.buffer(256, "small").unwrap();
    let sizes = (48..53).map(|mebibytes| mebibytes << 20);
    for _ in 0..4 {
        for size in sizes.clone() {
            mix(&device, &small, &device.buffer(size, "turn").unwrap(), 64, 1).unwrap();
        }
    }
    let stats = device.stats();
    assert_eq!(stats.submits, before.submits, "it is in one go");
    let most = sizes.sum::<u64>() + (1 << 20);
    assert!(
        stats.peak_bytes - before.live_bytes <= most,
        "{} bytes, wanted {most}",
        stats.peak_bytes - before.live_bytes
    );
    block_on(device.sync()).unwrap();
    device.trim();
    block_on(device.sync()).unwrap();
    assert_eq!(device.stats().pooled_bytes, 0);
    assert!(device.stats().live_bytes - before.live_bytes < 1 << 20, "{:?}", device.stats());
}

#[test]
fn kernels_are_timed_where_there_are_timestamps() {
    let device = plain();
    if !device.capabilities().timestamp_query {
        skip::skipped("kernel times: this adapter has no timestamp-query");
        return;
    }
    device.set_profiling(true).unwrap();
    let (a, b) = (device.buffer(4096, "a").unwrap(), device.buffer(4096, "b").unwrap());
    for _ in 0..10 {
        mix(&device, &a, &b, 1024, 1).unwrap();
    }
    copy_first(&device, &a, &b).unwrap();
    let times = block_on(device.kernel_times()).unwrap();
    assert_eq!((times["mix"].dispatches, times["copy_first"].dispatches), (10, 1));
    assert!(times["mix"].nanoseconds > 0);
    assert_eq!((times["mix"].read_bytes, times["copy_first"].read_bytes), (10 * 4096, 4096));
    let wide = device.buffer(8192, "wide").unwrap();
    for source in [&a, &wide, &a] {
        mix(&device, source, &b, 1024, 1).unwrap();
    }
    let uses = block_on(device.kernel_uses()).unwrap();
    let of = |kernel: &KernelUse| (kernel.label.clone(), kernel.time.dispatches, kernel.time.read_bytes);
    assert_eq!(uses.iter().map(of).collect::<Vec<_>>(), [("mix".into(), 2, 8192), ("mix".into(), 1, 8192)]);
    device.set_profiling(false).unwrap();
    mix(&device, &a, &b, 1024, 1).unwrap();
    assert!(block_on(device.kernel_times()).unwrap().is_empty());
}

#[test]
fn bad_use_is_refused_at_the_call_and_the_device_goes_on() {
    let (device, other) = (plain(), plain());
    let (a, b) = (device.buffer(256, "a").unwrap(), device.buffer(256, "b").unwrap());
    let foreign = other.buffer(256, "foreign").unwrap();
    let slice = |buffer: &Buffer, offset, size| BufferSlice { buffer: buffer.clone(), offset, size };
    let code = |result: Result<()>| result.unwrap_err().code();

    assert_eq!(code(mix(&device, &a, &foreign, 64, 0)), Code::WrongDevice);
    assert_eq!(code(device.write(&foreign, 0, &[0; 4])), Code::WrongDevice);
    assert_eq!(code(device.copy(&foreign.slice(), &a.slice())), Code::WrongDevice);
    assert_eq!(device.read(&[foreign.slice()]).err().unwrap().code(), Code::WrongDevice);
    assert_eq!(code(device.write(&a, 252, &[0; 8])), Code::OutOfRange);
    assert_eq!(code(device.write(&a, u64::MAX - 3, &[0; 8])), Code::OutOfRange);
    assert_eq!(code(device.write(&a, 2, &[0; 4])), Code::OutOfRange);
    assert_eq!(code(device.copy(&slice(&a, 0, 256), &slice(&b, 128, 128))), Code::OutOfRange);
    assert_eq!(device.read(&[slice(&a, 200, 100)]).err().unwrap().code(), Code::OutOfRange);
    let shader = Shader { label: "mix", template: Template::Static(MIX), modules: &[], defines: &[] };
    let bind = |source| {
        let bindings = [
            Binding::Read(0, source),
            Binding::ReadWrite(1, b.slice()),
            Binding::Uniform(2, &[64, 0, 0, 0, 0, 0, 0, 0]),
        ];
        code(device.dispatch(&shader, &bindings, [1, 1, 1]))
    };
    assert_eq!(bind(slice(&a, 0, 512)), Code::OutOfRange);
    assert_eq!(bind(slice(&a, 4, 64)), Code::OutOfRange);
    let limit = device.capabilities().max_workgroups_per_dimension;
    let bindings = [Binding::Read(0, a.slice())];
    assert_eq!(code(device.dispatch(&shader, &bindings, [limit + 1, 1, 1])), Code::AdapterLimits);
    let too_large = device.buffer(device.capabilities().max_buffer_size + 1, "too large");
    assert_eq!(too_large.err().unwrap().code(), Code::AdapterLimits);
    let plan = capture(&other, &foreign, 2);
    assert_eq!(code(device.replay(&plan)), Code::WrongDevice);

    mix(&device, &a, &b, 64, 0).unwrap();
    block_on(device.sync()).unwrap();

    device.destroy();
    assert_eq!(code(mix(&device, &a, &b, 64, 0)), Code::Disposed);
    assert_eq!(device.buffer(4, "late").err().unwrap().code(), Code::Disposed);
    assert_eq!(block_on(device.sync()).unwrap_err().code(), Code::Disposed);
}

#[test]
fn errors_name_the_kernels() {
    for debug in [false, true] {
        let device = device(DeviceOptions { debug, ..Default::default() });
        let (a, b) = (device.buffer(256, "a").unwrap(), device.buffer(256, "b").unwrap());
        copy_first(&device, &a, &b).unwrap();
        // Reads and writes one buffer, which WebGPU refuses when it sees the pass.
        mix(&device, &a, &a, 64, 0).unwrap();
        if debug {
            copy_first(&device, &a, &b).unwrap();
        }
        let error = block_on(device.sync()).unwrap_err();
        assert_eq!(error.code(), Code::GpuValidation);
        assert!(error.message().contains("mix"), "{error}");
        if debug {
            assert!(!error.message().contains("copy_first"), "debug mode names the one kernel: {error}");
        }
        copy_first(&device, &a, &b).unwrap();
        block_on(device.sync()).unwrap();
    }
}

#[test]
fn a_shader_that_does_not_compile_shows_its_line() {
    let device = plain();
    let buffer = device.buffer(256, "x").unwrap();
    let text = "@group(0) @binding(0) var<storage, read_write> x: array<u32>;\n\
                @compute @workgroup_size(1)\nfn main() {\n    x[0] = nonsense;\n}";
    let shader = Shader { label: "broken", template: Template::Text(text), modules: &[], defines: &[] };
    let dispatch = || device.dispatch(&shader, &[Binding::ReadWrite(0, buffer.slice())], [1, 1, 1]);
    for error in [block_on(device.prepare(dispatch)).unwrap_err(), {
        dispatch().unwrap();
        block_on(device.sync()).unwrap_err()
    }] {
        assert_eq!(error.code(), Code::ShaderCompilation);
        assert!(error.message().contains("broken") && error.message().contains("nonsense"), "{error}");
    }
    let (a, b) = (device.buffer(256, "a").unwrap(), device.buffer(256, "b").unwrap());
    mix(&device, &a, &b, 64, 0).unwrap();
    block_on(device.sync()).unwrap();
}
