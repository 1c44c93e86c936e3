//! How long kernels and chains of dispatches take.

use std::collections::BTreeMap;

use super::Device;
use crate::error::Result;
use crate::gpu::buffer::BufferSlice;
use crate::gpu::profile::{KernelTime, KernelUse, Pending, Profiler, Timing, by_kernel};
use crate::gpu::stats::FlushReason;

/// Longer than any pass takes: a driver ends a program that keeps its GPU busy for seconds.
const LONGEST_PASS_NS: f64 = 2e9;

/// What lies between two timestamps, by their lower words: on NVIDIA's driver 580 the upper word of one may be that of another moment. On some
/// drivers the clock jumps back, or one of the two is missing; such a pair counts as zero.
fn nanoseconds(begin: u64, end: u64, period: f64) -> u64 {
    let nanoseconds = f64::from(end.wrapping_sub(begin) as u32) * period;
    if begin == 0 || nanoseconds > LONGEST_PASS_NS { 0 } else { nanoseconds as u64 }
}

impl Device {
    /// Switches the timing of kernels on or off.
    pub fn set_profiling(&self, on: bool) -> Result<()> {
        let raw = &self.parts().raw;
        if on && !raw.capabilities.timestamp_query {
            bail!(AdapterLimits, "this adapter has no timestamp-query, so kernels can't be timed");
        }
        self.flush();
        self.profiler().timing.set(if on { Timing::Dispatches } else { Timing::Off });
        Ok(())
    }

    /// How long chains of dispatches take. `record` is called once for each chain, with its number. If the adapter has
    /// timestamps, they are used; browsers round them to tenths of a millisecond. Otherwise the clock is used, from before the
    /// chain is recorded until the wait for it ends, which is a few milliseconds too long. Zero means not measured.
    pub async fn time_chains(
        &self,
        chains: usize,
        record: &dyn Fn(usize) -> Result<()>,
    ) -> Result<Vec<web_time::Duration>> {
        let raw = &self.parts().raw;
        if !raw.capabilities.timestamp_query || self.parts().recorder.splits_submits() {
            let mut times = Vec::with_capacity(chains);
            for chain in 0..chains {
                self.sync().await?;
                let start = web_time::Instant::now();
                record(chain)?;
                self.sync().await?;
                times.push(start.elapsed());
            }
            return Ok(times);
        }
        let profiler = self.profiler();
        self.flush();
        let before = profiler.timing.replace(Timing::Submits);
        let kept = profiler.replace_pending(Vec::new());
        let recorded = self.record_chains(chains, record).await;
        profiler.timing.set(Timing::Off);
        let pending = profiler.replace_pending(kept);
        let read = match recorded {
            Ok(()) => self.read_timestamps(&pending).await,
            Err(error) => Err(error),
        };
        profiler.timing.set(before);
        let nanoseconds = read?.into_iter().map(|times| times.first().copied().unwrap_or_default());
        Ok(nanoseconds.map(web_time::Duration::from_nanos).collect())
    }

    /// Submits chains, no more at once than the pace allows.
    async fn record_chains(&self, chains: usize, record: &dyn Fn(usize) -> Result<()>) -> Result<()> {
        for chain in 0..chains {
            record(chain)?;
            self.flush();
            self.sent().await;
        }
        Ok(())
    }

    /// The nanoseconds of each pair of timestamps.
    async fn read_timestamps(&self, pending: &[Pending]) -> Result<Vec<Vec<u64>>> {
        let period = f64::from(self.parts().raw.queue.get_timestamp_period());
        let slices: Vec<BufferSlice> = pending.iter().map(Pending::slice).collect();
        let submits = self.read(&slices)?.bytes().await?;
        let times = |bytes: Vec<u8>| {
            let ticks: Vec<u64> = bytemuck::pod_collect_to_vec(&bytes);
            ticks.chunks_exact(2).map(|pair| nanoseconds(pair[0], pair[1], period)).collect()
        };
        Ok(submits.into_iter().map(times).collect())
    }

    /// GPU times by kernel since the last call.
    pub async fn kernel_times(&self) -> Result<BTreeMap<String, KernelTime>> {
        let mut times: BTreeMap<String, KernelTime> = BTreeMap::new();
        for KernelUse { label, time } in self.kernel_uses().await? {
            let sum = times.entry(label).or_default();
            sum.dispatches += time.dispatches;
            sum.nanoseconds += time.nanoseconds;
            sum.read_bytes += time.read_bytes;
        }
        Ok(times)
    }

    /// GPU times by kernel and by the bytes that a dispatch has bound for reading, since the last call of this or of
    /// [`Device::kernel_times`].
    pub async fn kernel_uses(&self) -> Result<Vec<KernelUse>> {
        let profiler = self.profiler();
        self.parts().recorder.flush(FlushReason::Readback);
        // The read-back itself is not timed.
        let timing = profiler.timing.take();
        let pending = profiler.replace_pending(Vec::new());
        let read = self.read_timestamps(&pending).await;
        profiler.timing.set(timing);
        Ok(by_kernel(&pending, read?))
    }

    fn profiler(&self) -> &Profiler {
        &self.parts().recorder.queue.profiler
    }
}

#[cfg(test)]
mod tests {
    use super::nanoseconds;

    #[test]
    fn broken_pairs_of_timestamps_count_as_zero() {
        assert_eq!(nanoseconds(1_000, 1_700, 1.0), 700);
        assert_eq!(nanoseconds(1_000, 1_700, 0.5), 350);
        assert_eq!([nanoseconds(5, 3, 1.0), nanoseconds(0, 1_795_714_000_000_000_000, 1.0)], [0; 2]);
        let upper = 1 << 32;
        assert_eq!([nanoseconds(7, 9 + upper, 1.0), nanoseconds(7 + 3 * upper, 9, 1.0)], [2; 2]);
        assert_eq!(nanoseconds(upper - 1, upper + 1, 1.0), 2);
    }
}
