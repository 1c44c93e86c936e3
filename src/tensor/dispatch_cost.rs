//! Measures what a chain of small dependent dispatches costs this runtime, recorded in three ways: through the caches with a submit for
//! each, through the caches with one submit, and as a replay. And what it costs if each dispatch has a uniform that none had before, with
//! caches and without.
//!
//! Each dispatch adds one tensor of 256 elements to another, or with new uniforms multiplies it. `www/bench/dispatch.js` measures the same without this runtime.

use std::cell::{Cell, RefCell};

use serde::Serialize;
use web_time::{Duration, Instant};

use super::ops::{Add, Scale};
use super::{AdapterInfo, CacheSizes, Context, Desc, Device, DeviceOptions, HostTensor, Tensor};
use crate::error::Result;

/// Microseconds per dispatch.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// `flush_each`, `eager` or `replay`; with new uniforms, `misses` with caches and `no_caches` without.
    pub variant: &'static str,
    /// Until the commands are submitted: the tenth percentile. Longer times are due to other processes: a submit wakes the GPU process,
    /// which takes the thread's core if others are busy.
    pub encode_us: f64,
    /// Until the GPU has done them, if chains are submitted one after the other and waited for once: the median.
    pub whole_us: f64,
    /// Until the GPU has done them, if each chain is waited for before the next: the median. Much of it is the wait, which in browsers ends
    /// on a poll every millisecond or two.
    pub alone_us: f64,
}

const ELEMENTS: usize = 256;

/// Chains before the measured ones.
const WARM_UP: usize = 8;

/// Chains of a stream with one submit for each chain: enough that the wait at its end counts little.
const STREAM: usize = 48;

/// A stream takes as long as many chains, so there are 10 times fewer samples of streams than of chains.
const FEWER_STREAMS: usize = 10;

/// A sample has enough chains that encoding them takes 20 ticks of the clock. A page's clock ticks every 5 µs, or every 100 µs if the
/// page is not cross-origin isolated.
const TICKS: u32 = 20;

/// Encodes a chain.
type Encode<'a> = &'a dyn Fn() -> Result<()>;

/// Takes `repetitions` samples of chains of `count` dispatches.
pub async fn measure(options: &DeviceOptions, count: usize, repetitions: usize) -> Result<(AdapterInfo, Vec<Cost>)> {
    if count == 0 || repetitions == 0 {
        bail!(InvalidRequest, "count is {count} and repetitions {repetitions}, wanted at least 1 of each");
    }
    let extent = Extent { count, repetitions };
    let (adapter, mut costs) = recorded(options, extent).await?;
    let none = CacheSizes { uniforms: 0, bind_groups: 0, ..options.caches };
    for (variant, caches) in [("misses", options.caches), ("no_caches", none)] {
        costs.push(missed(&DeviceOptions { caches, ..options.clone() }, variant, extent).await?);
    }
    Ok((adapter, costs))
}

#[derive(Clone, Copy)]
struct Extent {
    count: usize,
    repetitions: usize,
}

async fn recorded(options: &DeviceOptions, extent: Extent) -> Result<(AdapterInfo, Vec<Cost>)> {
    let Extent { count, .. } = extent;
    let context = Context::new(Device::request(options).await?);
    let device = context.device();
    let x = context.zeros(Desc::f32(&[1, ELEMENTS]))?;
    let y = context.tensor(&HostTensor::f32(&[1, ELEMENTS], &[1.0; ELEMENTS]))?;
    let add = || context.run(&Add, &[&x, &y]).map(|_| ());
    let chain = || (0..count).try_for_each(|_| add());
    let ((), plan) = context.plan(chain).await?;
    // Planning ran it once.
    let mut dispatches = count;

    let flush_each = || {
        (0..count).try_for_each(|_| {
            add()?;
            device.flush();
            Ok(())
        })
    };
    let eager = || {
        chain()?;
        device.flush();
        Ok(())
    };
    let replay = || {
        context.replay(&plan)?;
        device.flush();
        Ok(())
    };
    // A chain of many submits is a stream by itself; more would fill the browser's queues and slow the next measurements.
    let variants: [(&'static str, Encode<'_>, usize); 3] =
        [("flush_each", &flush_each, 1), ("eager", &eager, STREAM), ("replay", &replay, STREAM)];
    let mut costs = Vec::new();
    for (variant, encode, stream) in variants {
        let (cost, ran) = cost(device, variant, encode, stream, extent).await?;
        dispatches += ran;
        costs.push(cost);
    }
    check(&context, &x, dispatches).await?;
    let adapter = device.adapter().clone();
    device.destroy();
    Ok((adapter, costs))
}

/// The cost if no dispatch finds its uniform, and so its bind group, in a cache: each has another factor.
async fn missed(options: &DeviceOptions, variant: &'static str, extent: Extent) -> Result<Cost> {
    let context = Context::new(Device::request(options).await?);
    let device = context.device();
    let ones = context.tensor(&HostTensor::f32(&[1, ELEMENTS], &[1.0; ELEMENTS]))?;
    let (factor, last) = (Cell::new(0f32), RefCell::new(ones.clone()));
    let encode = || {
        for _ in 0..extent.count {
            factor.set(factor.get() + 1.0);
            *last.borrow_mut() = context.run1(&Scale { factor: factor.get() }, &[&ones])?;
        }
        device.flush();
        Ok(())
    };
    let (cost, ran) = cost(device, variant, &encode, STREAM, extent).await?;
    check(&context, &last.into_inner(), ran).await?;
    device.destroy();
    Ok(cost)
}

/// The elements are the number of dispatches, or something else was measured.
async fn check(context: &Context, counted: &Tensor, dispatches: usize) -> Result<()> {
    let elements = context.readback(&[counted]).await?.remove(0).to_f32()?;
    if let Some(wrong) = elements.iter().find(|element| **element != dispatches as f32) {
        bail!(NumericalError, "{dispatches} dispatches counted {wrong}");
    }
    Ok(())
}

/// Measures a way to encode a chain; and how many dispatches ran. A stream is `stream` chains.
async fn cost(
    device: &Device,
    variant: &'static str,
    encode: Encode<'_>,
    stream: usize,
    Extent { count, repetitions }: Extent,
) -> Result<(Cost, usize)> {
    let tick = tick();
    let mut chains = 0;
    device.sync().await?;
    // The time to encode a chain, and the time until it is done.
    let mut run = async || -> Result<[Duration; 2]> {
        let start = Instant::now();
        encode()?;
        let encoded = start.elapsed();
        device.sync().await?;
        chains += 1;
        Ok([encoded, start.elapsed()])
    };
    for _ in 0..WARM_UP {
        run().await?;
    }
    let mut chains_per_sample = 0;
    let mut encoded = Duration::ZERO;
    while encoded < TICKS * tick {
        encoded += run().await?[0];
        chains_per_sample += 1;
    }
    let (mut encodes, mut alones) = (Vec::new(), Vec::new());
    for _ in 0..repetitions {
        let mut sample = [Duration::ZERO; 2];
        for _ in 0..chains_per_sample {
            let [encoded, alone] = run().await?;
            sample = [sample[0] + encoded, sample[1] + alone];
        }
        let [encoded, alone] = sample.map(|time| time.as_secs_f64() * 1e6 / (chains_per_sample * count) as f64);
        encodes.push(encoded);
        alones.push(alone);
    }
    let mut wholes = Vec::new();
    for _ in 0..repetitions.div_ceil(FEWER_STREAMS) {
        let start = Instant::now();
        for _ in 0..stream {
            encode()?;
        }
        device.sync().await?;
        wholes.push(start.elapsed().as_secs_f64() * 1e6 / (stream * count) as f64);
    }
    let cost = Cost {
        variant,
        encode_us: quantile(&mut encodes, 0.1),
        whole_us: quantile(&mut wholes, 0.5),
        alone_us: quantile(&mut alones, 0.5),
    };
    Ok((cost, (chains + stream * wholes.len()) * count))
}

/// The clock's tick: the smallest of a few steps of it.
fn tick() -> Duration {
    let step = || {
        let start = Instant::now();
        loop {
            let step = start.elapsed();
            if !step.is_zero() {
                return step;
            }
        }
    };
    (0..10).map(|_| step()).min().unwrap_or_default()
}

fn quantile(times: &mut [f64], q: f64) -> f64 {
    times.sort_by(f64::total_cmp);
    times[((times.len() - 1) as f64 * q).round() as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        assert_eq!(quantile(&mut [3.0], 0.1), 3.0);
        let mut times: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        assert_eq!(quantile(&mut times, 0.1), 10.0);
        assert_eq!(quantile(&mut times, 0.5), 50.0);
    }

    #[test]
    fn clocks_tick() {
        assert!((1..1_000_000).contains(&tick().as_nanos()));
    }
}
