//! Measures what a chain of small dependent dispatches costs this runtime, by how they are recorded: through the caches with a
//! submit for each, through the caches with one submit, and as a replay.
//!
//! Each dispatch adds one tensor of 256 elements to another. `www/bench/dispatch.js` measures the same without this runtime.

use serde::Serialize;
use web_time::Instant;

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

/// A repetition is as many chains as take so long to encode: the clock of a page ticks every 5 µs at best, 100 µs where it is
/// not cross-origin isolated.
const LEAST_ENCODE_US: f64 = 5000.0;
const LEAST_CHAINS: usize = 8;

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
            let (mut encoding, mut whole): (Vec<f64>, Vec<f64>) = Default::default();
            while encoding.len() < LEAST_CHAINS || encoding.iter().sum::<f64>() < LEAST_ENCODE_US {
                let start = Instant::now();
                encode()?;
                encoding.push(start.elapsed().as_secs_f64() * 1e6);
                device.sync().await?;
                whole.push(start.elapsed().as_secs_f64() * 1e6);
            }
            dispatches += encoding.len() * count;
            if repetition > 0 {
                encodes.push(interquartile_mean(&mut encoding) / count as f64);
                wholes.push(interquartile_mean(&mut whole) / count as f64);
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

/// The mean of the middle half. The outer ones are chains during which the scheduler ran something else, such as the GPU
/// process that the submit woke; a median would show the clock's ticks.
fn interquartile_mean(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    let quarter = times.len() / 4;
    let middle = &times[quarter..times.len() - quarter];
    middle.iter().sum::<f64>() / middle.len() as f64
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    let middle = times.len() / 2;
    if times.len().is_multiple_of(2) { (times[middle - 1] + times[middle]) / 2.0 } else { times[middle] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outliers_do_not_count() {
        assert_eq!(interquartile_mean(&mut [900.0, 2.0, 3.0, 1.0, 4.0, 0.0, 800.0, 5.0]), 3.5);
        assert_eq!(interquartile_mean(&mut [1.0, 2.0, 3.0]), 2.0);
        assert_eq!(median(&mut [9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [9.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
