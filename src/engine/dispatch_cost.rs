//! Measures what a chain of small dependent dispatches costs this runtime, by how they are recorded: through the caches with a
//! submit for each, through the caches with one submit, and as a replay.
//!
//! Each dispatch adds one tensor of 256 elements to another. `www/bench/dispatch.js` measures the same without this runtime.

use serde::Serialize;
use web_time::{Duration, Instant};

use crate::error::Result;
use crate::tensor::ops::Add;
use crate::tensor::{AdapterInfo, Context, Desc, Device, DeviceOptions, HostTensor};

/// Microseconds per dispatch, medians over the repetitions.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    pub variant: &'static str,
    /// Until the commands are submitted.
    pub encode_us: f64,
    /// Until the GPU has done them.
    pub whole_us: f64,
}

const ELEMENTS: usize = 256;

/// Clocks of pages tick in 5 to 100 µs, so one measurement sums up so much time of encoding.
const LEAST_ENCODE: Duration = Duration::from_millis(5);

/// Chains of `count` dispatches; `repetitions` measurements after a first one that is dropped.
pub async fn measure(options: &DeviceOptions, count: usize, repetitions: usize) -> Result<(AdapterInfo, Vec<Cost>)> {
    if count == 0 || repetitions == 0 {
        bail!(InvalidRequest, "count is {count} and repetitions {repetitions}, wanted at least 1 of each");
    }
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
    let variants: [(&'static str, &dyn Fn() -> Result<()>); 3] =
        [("flush_each", &flush_each), ("eager", &eager), ("replay", &replay)];
    device.sync().await?;
    let mut costs = Vec::new();
    for (variant, encode) in variants {
        let (mut encodes, mut wholes) = (Vec::new(), Vec::new());
        for repetition in 0..=repetitions {
            let (mut encoding, mut whole, mut chains) = (Duration::ZERO, Duration::ZERO, 0);
            while encoding < LEAST_ENCODE {
                let start = Instant::now();
                encode()?;
                encoding += start.elapsed();
                device.sync().await?;
                whole += start.elapsed();
                chains += 1;
            }
            dispatches += chains * count;
            if repetition > 0 {
                let each = 1e6 / (chains * count) as f64;
                encodes.push(encoding.as_secs_f64() * each);
                wholes.push(whole.as_secs_f64() * each);
            }
        }
        costs.push(Cost { variant, encode_us: median(&mut encodes), whole_us: median(&mut wholes) });
    }

    // Every dispatch added one, or what was measured is not what was meant.
    let sums = context.readback(&[&x]).await?.remove(0).to_f32()?;
    if let Some(wrong) = sums.iter().find(|sum| **sum != dispatches as f32) {
        bail!(Internal, "{dispatches} dispatches added up to {wrong}");
    }
    let adapter = device.adapter().clone();
    device.destroy();
    Ok((adapter, costs))
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    let middle = times.len() / 2;
    if times.len().is_multiple_of(2) { (times[middle - 1] + times[middle]) / 2.0 } else { times[middle] }
}
