//! Measures what a chain of small dependent dispatches costs, by how it is encoded: the way of runtimes that make a pass, a
//! bind group and a uniform for each, against this one's caches and replays.

use serde::Serialize;
use web_time::Instant;

use crate::error::Result;
use crate::tensor::ops::Add;
use crate::tensor::{AdapterInfo, Context, Desc, Device, DeviceOptions};

/// Microseconds per dispatch, medians over the repetitions.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    pub variant: &'static str,
    /// Until the commands are submitted.
    pub encode_us: f64,
    /// Until the GPU has done them.
    pub whole_us: f64,
}

/// `count` dispatches in each of `repetitions`, of which the first is dropped.
pub async fn measure(options: &DeviceOptions, count: usize, repetitions: usize) -> Result<(AdapterInfo, Vec<Cost>)> {
    if count == 0 || repetitions == 0 {
        bail!(InvalidRequest, "count is {count} and repetitions {repetitions}, wanted at least 1 of each");
    }
    let context = Context::new(Device::request(options).await?);
    let x = context.zeros(Desc::f32(&[1, 256]))?;
    let y = context.zeros(Desc::f32(&[1, 256]))?;
    let add = || context.run(&Add, &[&x, &y]).map(|_| ());
    let chain = || (0..count).try_for_each(|_| add());
    chain()?;
    context.device().sync().await?;
    let ((), plan) = context.plan(chain).await?;
    context.device().sync().await?;

    let device = context.device();
    let mut costs = Vec::new();
    for variant in ["submit_each", "eager", "replay"] {
        let (mut encode, mut whole) = (Vec::new(), Vec::new());
        for _ in 0..=repetitions {
            let start = Instant::now();
            match variant {
                "submit_each" => {
                    for _ in 0..count {
                        add()?;
                        device.flush();
                    }
                }
                "eager" => chain()?,
                _ => context.replay(&plan)?,
            }
            device.flush();
            encode.push(start.elapsed().as_secs_f64());
            device.sync().await?;
            whole.push(start.elapsed().as_secs_f64());
        }
        costs.push(Cost {
            variant,
            encode_us: median(&mut encode[1..]) * 1e6 / count as f64,
            whole_us: median(&mut whole[1..]) * 1e6 / count as f64,
        });
    }
    let adapter = device.adapter().clone();
    device.destroy();
    Ok((adapter, costs))
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
