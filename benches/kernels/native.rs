//! The bench itself: options, kernels, clocks.

#[allow(dead_code, reason = "tests use more of it")]
#[path = "../../tests/support/adapter.rs"]
mod adapter;
#[allow(dead_code, reason = "tests use more of it")]
#[path = "../../tests/support/parity.rs"]
mod parity;

use std::time::Instant;

use pollster::block_on;
use rillm::Result;
use rillm::tensor::ops::{self, AttentionTile};
use rillm::tensor::{Context, DeviceOptions, HostTensor, Op, Rng, Shape, Tensor, quant};

const HELP: &str =
    "options: --tokens N (512)  --filter TEXT (all)  --format NAME (q4_0)  --chain N (20)  --repeat N (5)
  --software true|false (as the adapter is)  --skip-check";

/// Weights that a mat-vec goes through in turn, so that no cache holds them.
const ROTATION_BYTES: u64 = 256 << 20;
const MAT_MUL_SHAPES: [[usize; 2]; 4] = [[3072, 2048], [2048, 2048], [16384, 2048], [2048, 8192]];
/// Images, channels, side of a plane, output channels, side of the kernel.
const CONVOLUTION_SHAPES: [[usize; 5]; 4] =
    [[8, 64, 56, 64, 3], [8, 256, 28, 256, 1], [1, 512, 14, 512, 3], [1, 3, 224, 64, 7]];
const MAT_VEC_SHAPES: [[usize; 2]; 5] = [[3072, 2048], [2048, 2048], [16384, 2048], [2048, 8192], [128_256, 2048]];

struct Options {
    tokens: usize,
    filter: String,
    format: &'static quant::Format,
    chain: usize,
    repeat: usize,
    skip_check: bool,
}

/// What one dispatch of a kernel does.
#[derive(Clone, Copy)]
enum Work {
    Flop(f64),
    Bytes(f64),
}

struct Bench {
    context: Context,
    options: Options,
    rng: Rng,
    checked: Vec<&'static str>,
}

pub fn main() {
    let mut options = Options {
        tokens: 512,
        filter: String::new(),
        format: quant::Format::by_name("q4_0").expect("q4_0 is a format"),
        chain: 20,
        repeat: 5,
        skip_check: false,
    };
    let mut device = DeviceOptions::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_else(|| panic!("{argument} wants a value\n{HELP}"));
        match argument.as_str() {
            "--tokens" => options.tokens = value().parse().expect("--tokens wants a number"),
            "--filter" => options.filter = value(),
            "--format" => options.format = quant::Format::by_name(&value()).expect("--format wants a format's name"),
            "--chain" => options.chain = value().parse().expect("--chain wants a number"),
            "--repeat" => options.repeat = value().parse().expect("--repeat wants a number"),
            "--software" => device.software_kernels = Some(value() == "true"),
            "--skip-check" => options.skip_check = true,
            // What cargo passes.
            "--bench" => {}
            _ => {
                println!("{HELP}");
                return;
            }
        }
    }
    let context = adapter::context_with(&device);
    println!("{:?}", context.device().adapter());
    println!("{:?}", context.device().capabilities());
    println!("{} tokens, {} weights", options.tokens, options.format.name);
    println!("{:<44} {:>10} {:>10}   {:>14}", "kernel", "µs", "alone, µs", "rate");
    let mut bench = Bench { context, options, rng: Rng(1), checked: Vec::new() };
    block_on(bench.run()).unwrap_or_else(|error| panic!("{error}"));
}

impl Bench {
    async fn run(&mut self) -> Result<()> {
        let tokens = self.options.tokens;
        for [rows, columns] in MAT_MUL_SHAPES {
            let flop = Work::Flop(2.0 * (tokens * rows * columns) as f64);
            if self.options.format.int8.is_some() {
                let name = format!("mat_mul_int8 [{rows}, {columns}]");
                self.time(&name, &ops::MatMulInt8::default(), flop, async |bench| {
                    let x = bench.context.tensor(&bench.rng.tensor(&[tokens, columns]))?;
                    let mut inputs = bench.context.run(&ops::Quantize, &[&x])?;
                    inputs.push(bench.weight(rows, columns)?);
                    Ok(vec![inputs])
                })
                .await?;
            }
            let name = format!("mat_mul [{rows}, {columns}]");
            self.time(&name, &ops::MatMul::default(), flop, async |bench| {
                let x = bench.context.tensor(&bench.rng.tensor(&[tokens, columns]))?;
                Ok(vec![vec![x, bench.weight(rows, columns)?]])
            })
            .await?;
        }
        for columns in [2048, 8192] {
            let bytes = Work::Bytes((tokens * columns) as f64 * (4.0 + 1.0 + 4.0 / 32.0));
            self.time(&format!("quantize [{tokens}, {columns}]"), &ops::Quantize, bytes, async |bench| {
                Ok(vec![vec![bench.random(&[tokens, columns])?]])
            })
            .await?;
        }
        self.producers().await?;
        self.attention().await?;
        self.attention_of_one_token().await?;
        self.recurrences().await?;
        self.experts().await?;
        self.convolutions().await?;
        for [rows, columns] in MAT_VEC_SHAPES {
            let bytes = self.options.format.soa_layout(rows, columns).bytes;
            let name = format!("mat_vec [{rows}, {columns}]");
            self.time(&name, &ops::MatVec, Work::Bytes(bytes as f64), async |bench| {
                let x = bench.random(&[1, columns])?;
                let copies = ROTATION_BYTES.div_ceil(bytes).min(bench.options.chain as u64 * 2);
                (0..copies).map(|_| Ok(vec![x.clone(), bench.weight(rows, columns)?])).collect()
            })
            .await?;
            for (batch, soa) in [(2, true), (5, true), (8, true), (8, false)] {
                let order = if soa { "SoA" } else { "rows" };
                let name = format!("mat_vec_small_batch {batch} × [{rows}, {columns}] in {order}");
                let op = ops::MatVecSmallBatch { soa, ..Default::default() };
                self.time(&name, &op, Work::Bytes(bytes as f64), async |bench| {
                    let x = bench.random(&[batch, columns])?;
                    let copies = ROTATION_BYTES.div_ceil(bytes).min(bench.options.chain as u64 * 2);
                    (0..copies).map(|_| Ok(vec![x.clone(), bench.weight(rows, columns)?])).collect()
                })
                .await?;
            }
        }
        let logits = [8, 128_256];
        let bytes = Work::Bytes((logits[0] * logits[1] * 4) as f64);
        self.time(&format!("argmax {logits:?}"), &ops::Argmax, bytes, async |bench| {
            Ok(vec![vec![bench.random(&logits)?]])
        })
        .await?;
        Ok(())
    }

    /// What stands between the products of a layer.
    async fn producers(&mut self) -> Result<()> {
        let (tokens, n_embd, n_ff, heads, kv_heads, head_dim) = (self.options.tokens, 2048, 8192, 32, 8, 64);
        let read = |columns: usize| (tokens * columns * 4) as f64;
        let int8 = |columns: usize| (tokens * columns) as f64 * (1.0 + 4.0 / 32.0);
        let norm = ops::RmsNorm { epsilon: 1e-5 };
        let norm_int8 = ops::RmsNormInt8 { epsilon: 1e-5 };
        let norms: [(&dyn Op, f64); 2] = [(&norm, read(n_embd) * 2.0), (&norm_int8, read(n_embd) + int8(n_embd))];
        for (op, bytes) in norms {
            self.time(&format!("{} [{tokens}, {n_embd}]", op.name()), op, Work::Bytes(bytes), async |bench| {
                Ok(vec![vec![bench.random(&[tokens, n_embd])?, bench.random(&[n_embd])?]])
            })
            .await?;
        }
        let swiglus: [(&dyn Op, f64); 2] = [
            (&ops::SwigluFused::default(), read(n_ff) * 3.0),
            (&ops::SwigluInt8::default(), read(n_ff) * 2.0 + int8(n_ff)),
        ];
        for (op, bytes) in swiglus {
            self.time(&format!("{} [{tokens}, {n_ff}]", op.name()), op, Work::Bytes(bytes), async |bench| {
                Ok(vec![vec![bench.random(&[tokens, 2 * n_ff])?]])
            })
            .await?;
        }
        let parts = ops::QkvParts::ALL;
        let rope = ops::RopeKvAppend {
            parts,
            heads,
            kv_heads,
            head_dim,
            interleaved: true,
            scale: 1.0,
            bias: false,
            norms: None,
        };
        let columns = (heads + 2 * kv_heads) * head_dim;
        let bytes = Work::Bytes(read(columns) * 2.0);
        self.time(&format!("rope_kv_append [{tokens}, {columns}]"), &rope, bytes, async |bench| {
            let state = bench.context.tensor(&HostTensor::u32(&[4], &[0; 4]))?;
            let caches = [tokens, kv_heads * head_dim];
            Ok(vec![vec![
                bench.random(&[tokens, columns])?,
                bench.random(&[head_dim / 2])?,
                state,
                bench.random(&caches)?,
                bench.random(&caches)?,
            ]])
        })
        .await
    }

    /// With a stride of one, and as many outputs as inputs in each plane.
    async fn convolutions(&mut self) -> Result<()> {
        for [n, channels, side, rows, kernel] in CONVOLUTION_SHAPES {
            let op = ops::Conv2d { stride: [1; 2], padding: [kernel / 2; 2], dilation: [1; 2], groups: 1, bias: false };
            let flop = 2.0 * (n * rows * side * side * channels * kernel * kernel) as f64;
            let name = format!("conv2d [{n}, {channels}, {side}, {side}] by [{rows}, {channels}, {kernel}, {kernel}]");
            self.time(&name, &op, Work::Flop(flop), async |bench| {
                Ok(vec![vec![
                    bench.random(&[n, channels, side, side])?,
                    bench.random(&[rows, channels, kernel, kernel])?,
                ]])
            })
            .await?;
        }
        Ok(())
    }

    async fn attention(&mut self) -> Result<()> {
        let (tokens, heads, kv_heads, head_dim) = (self.options.tokens, 32, 8, 64);
        for position in [0, 3584] {
            let pairs: usize = (0..tokens).map(|token| position + token + 1).sum();
            let flop = Work::Flop(4.0 * (heads * head_dim * pairs) as f64);
            for tile in AttentionTile::CANDIDATES {
                let attention = ops::Attention { heads, kv_heads, head_dim, scale: 0.125, window: None, softcap: None };
                let op = ops::AttentionPrefill { attention, tile, sinks: false };
                let name = format!("attention_prefill at {position} {tile:?}");
                self.time(&name, &op, flop, async |bench| {
                    let caches = [position + tokens, kv_heads * head_dim];
                    let state = bench.context.tensor(&HostTensor::u32(&[4], &[position as u32, 0, 0, 0]))?;
                    let q = bench.random(&[tokens, heads * head_dim])?;
                    Ok(vec![vec![q, bench.random(&caches)?, bench.random(&caches)?, state]])
                })
                .await?;
            }
        }
        Ok(())
    }

    /// Decoding at a position: heads of Llama 3.2 and of Gemma 4 E2B.
    async fn attention_of_one_token(&mut self) -> Result<()> {
        let capabilities = self.context.device().capabilities().clone();
        for (heads, kv_heads, head_dim) in [(32, 8, 64), (8, 1, 256), (8, 1, 512)] {
            for position in [16, 576] {
                let splits = ops::Splits::choose(head_dim, &capabilities);
                let (scale, window, softcap) = (1.0, None, None);
                let op = ops::AttentionSplit { heads, kv_heads, head_dim, scale, window, softcap, splits };
                let bytes = Work::Bytes((2 * (position + 1) * kv_heads * head_dim * 4) as f64);
                self.time(&format!("attention_split {heads} × {head_dim} at {position}"), &op, bytes, async |bench| {
                    let caches = [2048, kv_heads * head_dim];
                    let state = bench.context.tensor(&HostTensor::u32(&[4], &[position as u32, 0, 0, 0]))?;
                    let q = bench.random(&[1, heads * head_dim])?;
                    Ok(vec![vec![q, bench.random(&caches)?, bench.random(&caches)?, state]])
                })
                .await?;
            }
        }
        Ok(())
    }

    /// The recurrences of Qwen3.5-0.8B and of Granite 4.0 H Micro, of a prompt and of one token.
    async fn recurrences(&mut self) -> Result<()> {
        for tokens in [1, self.options.tokens] {
            let (heads, dim) = (16, 128);
            let values = heads * dim;
            let delta = ops::GatedDelta {
                key_heads: heads,
                heads,
                key_dim: dim,
                value_dim: dim,
                tiled: false,
                first: [0; 3],
                normed: tokens == 1,
                epsilon: 1e-6,
                soa: false,
            };
            let flop = Work::Flop((tokens * heads * dim * dim * 8) as f64);
            self.time(&format!("gated_delta [{tokens}, {heads} × {dim}]"), &delta, flop, async |bench| {
                let state = bench.context.tensor(&HostTensor::u32(&[4], &[1, 0, 0, 0]))?;
                let [qkv, gate] = [3 * values, values].map(|columns| bench.random(&[tokens, columns]));
                let [beta, alpha] = [(); 2].map(|()| bench.random(&[tokens, heads]));
                let vectors = bench.random(&[2 * heads + dim])?;
                let kept = bench.random(&[ops::GatedDelta::state_len(heads, dim, dim)])?;
                Ok(vec![vec![qkv?, gate?, beta?, alpha?, vectors, state, kept]])
            })
            .await?;
            let (heads, head_dim, state) = (64, 64, 128);
            let channels = heads * head_dim;
            let scan = ops::SelectiveScan {
                heads,
                head_dim,
                groups: 1,
                state,
                matrix: false,
                first: [0, state, 0],
                dt_scale: 1.0,
                gate: None,
                soa: false,
            };
            let flop = Work::Flop((tokens * channels * state * 5) as f64);
            self.time(&format!("selective_scan [{tokens}, {heads} × {head_dim}]"), &scan, flop, async |bench| {
                let position = bench.context.tensor(&HostTensor::u32(&[4], &[1, 0, 0, 0]))?;
                let [x, bc, dt] = [channels, 2 * state, heads].map(|columns| bench.random(&[tokens, columns]));
                let vectors = bench.random(&[3 * heads])?;
                let kept = bench.random(&[ops::SelectiveScan::state_len(channels, state)])?;
                Ok(vec![vec![x?, bc?, dt?, vectors, position, kept]])
            })
            .await?;
        }
        Ok(())
    }

    /// A prompt's products with the experts of gpt-oss-20b.
    async fn experts(&mut self) -> Result<()> {
        let (tokens, used, experts, rows, columns) = (self.options.tokens, 4, 32, 2880, 2880);
        let pairs = tokens * used;
        let flop = Work::Flop(2.0 * (pairs * rows * columns) as f64);
        let ids: Vec<u32> = (0..pairs).map(|pair| ((pair * 7 + pair / used) % experts) as u32).collect();
        let inputs = async |bench: &mut Self, is_int8: bool| {
            let ids = bench.context.tensor(&HostTensor::u32(&[tokens, used], &ids))?;
            let x = bench.random(&[tokens, columns])?;
            let mut inputs = if is_int8 { bench.context.run(&ops::Quantize, &[&x])? } else { vec![x] };
            inputs.extend(bench.context.run(&ops::GroupExperts { experts }, &[&ids])?);
            inputs.push(bench.weight(experts * rows, columns)?);
            Ok(vec![inputs])
        };
        let op = ops::MatMulExperts { experts, bias: false, part: None };
        self.time("mat_mul_experts", &op, flop, async |bench| inputs(bench, false).await).await?;
        if self.options.format.int8.is_some() {
            let op = ops::MatMulExpertsInt8 { experts, bias: false, part: None };
            self.time("mat_mul_experts_int8", &op, flop, async |bench| inputs(bench, true).await).await?;
        }
        Ok(())
    }

    fn random(&mut self, dims: &[usize]) -> Result<Tensor> {
        self.context.tensor(&self.rng.tensor(dims))
    }

    /// A weight of some random rows over and over.
    fn weight(&mut self, rows: usize, columns: usize) -> Result<Tensor> {
        let format = self.options.format;
        let mut host = self.rng.weight(format, rows.min(64), columns);
        host.bytes = host.bytes.iter().copied().cycle().take(format.row_bytes(columns)? * rows).collect();
        host.shape = Shape::from([rows, columns]);
        self.context.tensor(&host)
    }

    /// Checks, times and prints one kernel; `inputs` makes the sets of inputs that dispatches go through in turn.
    async fn time(
        &mut self,
        name: &str,
        op: &dyn Op,
        work: Work,
        inputs: impl AsyncFnOnce(&mut Self) -> Result<Vec<Vec<Tensor>>>,
    ) -> Result<()> {
        if !name.contains(&self.options.filter) {
            return Ok(());
        }
        self.check(op.name()).await;
        let inputs = inputs(self).await?;
        let device = self.context.device().clone();
        let context = self.context.clone();
        let step = |count: usize| {
            for dispatch in 0..count {
                context.run(op, &inputs[dispatch % inputs.len()].iter().collect::<Vec<_>>())?;
            }
            Ok(())
        };
        let (chain, repeat) = (self.options.chain.max(2), self.options.repeat.max(1));
        let (_, one) = context.plan(|| step(1)).await?;
        let (_, many) = context.plan(|| step(chain)).await?;
        let mut times = Vec::new();
        // The first is to warm up.
        for _ in 0..=repeat {
            let mut seconds = [0.0; 2];
            for (plan, seconds) in [&one, &many].into_iter().zip(&mut seconds) {
                device.sync().await?;
                let start = Instant::now();
                context.replay(plan)?;
                device.sync().await?;
                *seconds = start.elapsed().as_secs_f64();
            }
            times.push((seconds[1] - seconds[0]) / (chain - 1) as f64);
        }
        let mut times = times.split_off(1);
        times.sort_by(f64::total_cmp);
        let time = times[times.len() / 2];

        let mut alone = String::from("-");
        if device.capabilities().timestamp_query {
            device.set_profiling(true)?;
            context.replay(&many)?;
            let kernels = device.kernel_times().await?;
            device.set_profiling(false)?;
            if let Some(kernel) = kernels.get(op.name()) {
                alone = format!("{:.1}", kernel.nanoseconds as f64 / kernel.dispatches as f64 / 1e3);
            }
        }
        let rate = match work {
            Work::Flop(flop) => format!("{:.2} TFLOP/s", flop / time / 1e12),
            Work::Bytes(bytes) => format!("{:.0} GB/s", bytes / time / 1e9),
        };
        println!("{name:<44} {:>10.1} {alone:>10}   {rate:>14}", time * 1e6);
        Ok(())
    }

    /// Holds an op to its CPU reference, once.
    async fn check(&mut self, name: &'static str) {
        if self.options.skip_check || self.checked.contains(&name) {
            return;
        }
        self.checked.push(name);
        for (_, cases) in ops::ALL.iter().chain(rillm::sampler::ops::ALL).filter(|(op, _)| *op == name) {
            for (index, case) in cases().iter().enumerate() {
                // Small ones: the reference is slow.
                let elements: usize = case.inputs.iter().map(|input| input.shape.elements()).sum();
                if elements < 200_000 {
                    parity::check(&self.context, name, index, case).await;
                }
            }
        }
    }
}
