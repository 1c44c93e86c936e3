//! Which tokens are drawn, and how often: thousands of draws of each sampler against the exact distribution, which plain
//! loops over the sorted vocabulary compute. Every draw is deterministic, so these tests pass or fail the same each time.
//!
//! Where all draws follow one rule (the largest sum of a token's log-probability and its noise), the thousands are drawn by it on the CPU, and hundreds
//! on the GPU, each of which has to be the very token of that rule.

use crate::support::adapter;
use rillm::sampler::{
    AdjustLists, Dry, DryBreakerWords, Mirostat, Penalties, SamplerPath, SamplerRow, SamplingParams, ops,
};
use rillm::tensor::ops::pcg3d;
use rillm::tensor::{Context, Desc, HostTensor, Rng, Tensor};

const DRAWS: usize = 20_000;
/// Where a draw takes long on a software adapter.
const FEW_DRAWS: usize = 500;
/// Sequences that draw at once, each with a seed of its own.
const ROWS: usize = 200;
/// Draws on the CPU to one on the GPU.
const TO_ONE_ON_THE_GPU: usize = 10;
/// Steps recorded before they are waited for.
const AT_ONCE: usize = 50;

/// The whole vocabulary.
fn all() -> SamplingParams {
    SamplingParams { seed: 7, ..SamplingParams::default() }
}

/// What a token is chosen by.
#[derive(Clone, Copy)]
struct Settings {
    sampler: SamplingParams,
    /// The surprise that mirostat allows, with a target.
    mu: f32,
}

impl From<SamplingParams> for Settings {
    fn from(sampler: SamplingParams) -> Self {
        Self { sampler, mu: 0.0 }
    }
}

/// How many rows draw `count` tokens.
fn rows_of(count: usize, vocabulary: usize) -> usize {
    if count.is_multiple_of(ROWS) && vocabulary < 2000 { ROWS } else { 1 }
}

/// A row's settings, with a seed of its own.
fn of_row(sampler: &SamplingParams, row: u64) -> SamplerRow {
    SamplerRow::new(&SamplingParams { seed: sampler.seed ^ row << 32, ..*sampler })
}

/// `count` tokens, drawn on the GPU by `rows_of` rows.
fn draw(context: &Context, logits: &[f32], settings: impl Into<Settings>, count: usize) -> Vec<u32> {
    let Settings { sampler, mu } = settings.into();
    let rows = rows_of(count, logits.len());
    let count = count / rows;
    let tensor = |host: HostTensor| context.tensor(&host).unwrap();
    let logits = tensor(HostTensor::f32(&[rows, logits.len()], &logits.repeat(rows)));
    let words = (0..rows as u64).map(|row| of_row(&sampler, row));
    let words = tensor(SamplerRow::tensor(&words.collect::<Vec<SamplerRow>>()));
    let mu = tensor(HostTensor::f32(&[rows], &vec![mu; rows]));
    let [state, token, ring] = [4, 1, count].map(|n| context.zeros(Desc::u32(&[rows, n])).unwrap());
    let run = |op: &dyn rillm::tensor::Op, inputs: &[&Tensor]| context.run(op, inputs).unwrap();
    // What does not depend on the step is done once.
    let logits = if sampler.top_n_sigma > 0.0 { run(&ops::TopNSigma, &[&logits, &words]).remove(0) } else { logits };
    let logits = if sampler.dynatemp_range > 0.0 { run(&ops::Dynatemp, &[&logits, &words]).remove(0) } else { logits };
    let tally = run(&ops::SampleRange, &[&logits]).remove(0);
    run(&ops::SampleHistogram, &[&logits, &words, &tally]);
    let split = || run(&ops::SampleSplit, &[&logits, &words, &state, &tally]);
    let band_before = run(&ops::SampleBand, &[&logits, &words, &split()[2], &mu]).remove(0);
    let typical = run(&ops::TypicalMoments, &[&logits, &words, &band_before]);
    for digit in 0..3 {
        let inputs = [&logits, &words, &band_before, &typical[0], &typical[1]];
        run(&ops::TypicalHistogram { digit }, &inputs);
    }
    run(&ops::TypicalBand, &[&words, &typical[1], &band_before]);
    let mass = run(&ops::BandMass, &[&logits, &words, &band_before]).remove(0);
    let this_band = context.zeros(Desc::u32(&[rows, 4])).unwrap();
    let step = || {
        if sampler.is_banded() {
            // XTC cuts the band at some steps.
            context.copy(&band_before, 0..4 * rows, &this_band, 0)?;
            run(&ops::Xtc, &[&logits, &words, &state, &mass, &this_band]);
            let partial = run(&ops::BandPartial, &[&logits, &words, &state, &this_band]);
            let merge = ops::SampleMerge { advance: 1, own: SamplerPath::Banded };
            run(&merge, &[&partial[0], &partial[1], &words, &state, &token, &ring]);
        } else if sampler.is_truncated() {
            let split = split();
            let resolve = ops::SampleResolve { advance: 1 };
            run(&resolve, &[&logits, &words, &split[0], &split[1], &split[2], &state, &token, &ring]);
        } else {
            let partial = run(&ops::SamplePartial, &[&logits, &words, &state]);
            let merge = ops::SampleMerge { advance: 1, own: SamplerPath::Whole };
            run(&merge, &[&partial[0], &partial[1], &words, &state, &token, &ring]);
        }
        Ok(())
    };
    // Recording runs the first one.
    let ((), plan) = pollster::block_on(context.plan(step)).unwrap();
    for done in 1..count {
        context.replay(&plan).unwrap();
        if done % AT_ONCE == 0 {
            pollster::block_on(context.device().sync()).unwrap();
        }
    }
    pollster::block_on(context.readback(&[&ring])).unwrap()[0].to_u32().unwrap()
}

/// The probability of each token: temperature, top-k, top-p of what that leaves, min-p; then typical-p, XTC and mirostat's allowed
/// surprise, each of what that leaves.
fn distribution(logits: &[f32], all: &Settings) -> Vec<f64> {
    let settings = &all.sampler;
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
    let largest = f64::from(logits[order[0]]);
    let cut = |order: &mut Vec<usize>, kept: usize| {
        // Equal logits stay together.
        let last = logits[order[kept - 1]];
        order.retain(|token| logits[*token] >= last);
    };
    if settings.top_n_sigma > 0.0 {
        // llama.cpp's `llama_sampler_top_n_sigma_apply`.
        let count = order.len() as f64;
        let mean = order.iter().map(|token| f64::from(logits[*token])).sum::<f64>() / count;
        let squares = order.iter().map(|token| (f64::from(logits[*token]) - mean).powi(2)).sum::<f64>();
        let least = largest - f64::from(settings.top_n_sigma) * (squares / count).sqrt();
        order.retain(|token| f64::from(logits[*token]) >= least);
    }
    let mut temperature = f64::from(settings.temperature);
    if settings.dynatemp_range > 0.0 {
        // llama.cpp's `llama_sampler_temp_ext_apply`.
        let total: f64 = order.iter().map(|token| (f64::from(logits[*token]) - largest).exp()).sum();
        let probability = |token: &usize| (f64::from(logits[*token]) - largest).exp() / total;
        let entropy: f64 = order.iter().map(|token| -probability(token) * probability(token).ln()).sum();
        let share = entropy / (order.len() as f64).ln();
        let range = f64::from(settings.dynatemp_range);
        let (low, high) = ((temperature - range).max(0.0), temperature + range);
        temperature = low + (high - low) * share.powf(f64::from(settings.dynatemp_exponent));
    }
    let weight = |token: usize| ((f64::from(logits[token]) - largest) / temperature).exp();
    if settings.top_k > 0 && (settings.top_k as usize) < order.len() {
        cut(&mut order, settings.top_k as usize);
    }
    if settings.top_p < 1.0 {
        let total: f64 = order.iter().map(|token| weight(*token)).sum();
        let mut sum = 0.0;
        let reached = |token: &usize| {
            sum += weight(*token);
            sum >= f64::from(settings.top_p) * total
        };
        let kept = order.iter().position(reached).unwrap() + 1;
        cut(&mut order, kept);
    }
    order.retain(|token| weight(*token) >= f64::from(settings.min_p));
    let total = |order: &[usize]| order.iter().map(|token| weight(*token)).sum::<f64>();
    if settings.typical_p < 1.0 {
        let total = total(&order);
        let probability = |token: usize| weight(token) / total;
        let surprise = |token: usize| -probability(token).ln();
        let entropy: f64 = order.iter().map(|token| probability(*token) * surprise(*token)).sum();
        let mut by_distance: Vec<(f64, usize)> =
            order.iter().map(|token| ((surprise(*token) - entropy).abs(), *token)).collect();
        by_distance.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut sum = 0.0;
        let reached = |(_, token): &(f64, usize)| {
            sum += probability(*token);
            sum >= f64::from(settings.typical_p)
        };
        let kept = by_distance.iter().position(reached).unwrap() + 1;
        // As near as the last, up to the rounding of these.
        let last = by_distance[kept - 1].0 + 1e-9;
        order = by_distance.into_iter().take_while(|(distance, _)| *distance <= last).map(|(_, token)| token).collect();
    }
    if settings.mirostat.is_some() {
        let least = (-f64::from(all.mu)).exp2();
        let most_probable = order[0];
        let total = total(&order);
        order.retain(|token| weight(*token) / total >= least || weight(*token) >= weight(most_probable));
    }
    let without_top = {
        let total = total(&order);
        let reaches = |token: &&usize| weight(**token) / total >= f64::from(settings.xtc_threshold);
        let least = order.iter().filter(reaches).map(|token| weight(*token)).fold(f64::INFINITY, f64::min);
        order.iter().copied().filter(|token| weight(*token) <= least).collect::<Vec<usize>>()
    };
    let excluded = f64::from(settings.xtc_probability);
    let mut probabilities = vec![0.0; logits.len()];
    for (order, share) in [(order, 1.0 - excluded), (without_top, excluded)] {
        let total = total(&order);
        for token in &order {
            probabilities[*token] += share * weight(*token) / total;
        }
    }
    probabilities
}

/// Draws and compares: no token that is cut off, each that is likely, and chi-square of the frequencies.
fn check(context: &Context, what: &str, logits: &[f32], settings: impl Into<Settings>, draws: usize) {
    let settings = settings.into();
    let probabilities = distribution(logits, &settings);
    check_against(context, what, logits, settings, draws, &probabilities);
}

/// At least `draws` tokens are drawn on the GPU. Each is the token that the rule chooses, or one that differs from it by rounding alone.
fn check_each(context: &Context, what: &str, logits: &[f32], settings: Settings, draws: usize, probabilities: &[f64]) {
    const ROUNDING: f64 = 1e-4;
    let kept = kept(probabilities);
    let draws = draws.next_multiple_of(ROWS);
    let steps = draws / rows_of(draws, logits.len());
    for (i, token) in draw(context, logits, settings, draws).into_iter().enumerate() {
        let (row, step) = (of_row(&settings.sampler, (i / steps) as u64), (i % steps) as u32);
        let wanted = chosen(&row, step, &kept);
        let [largest, value] = [wanted, token].map(|token| value(&row, step, token, probabilities[token as usize]));
        assert!(largest - value < ROUNDING, "{what}: row {row:?}, step {step}: token {token}, wanted {wanted}");
    }
}

/// The tokens with a probability, and one divided by it.
fn kept(probabilities: &[f64]) -> Vec<(u32, f64)> {
    let kept = probabilities.iter().enumerate().filter(|(_, probability)| **probability > 0.0);
    kept.map(|(token, probability)| (token as u32, probability.recip())).collect()
}

/// The token with the largest log-probability plus noise, which is the one with the smallest `exponential` for its probability. No `exponential`
/// is below `uniform`, so that few logarithms are taken.
fn chosen(row: &SamplerRow, step: u32, kept: &[(u32, f64)]) -> u32 {
    let (mut smallest, mut chosen) = (f64::INFINITY, u32::MAX);
    for (token, inverse) in kept {
        let v = uniform(row, step, *token);
        if v * inverse < smallest {
            let this = exponential(v) * inverse;
            if this < smallest {
                (smallest, chosen) = (this, *token);
            }
        }
    }
    chosen
}

/// What a token's noise is made of, as `gumbel.wgsl` describes it: uniform between 0 and 1.
fn uniform(row: &SamplerRow, step: u32, token: u32) -> f64 {
    let random = pcg3d([row.seed_low ^ token, row.seed_high, step])[0];
    ((f64::from(random) + 0.5) * 2f64.powi(-32)).min(0.999_999_94)
}

/// An exponential number of a uniform one. Minus its logarithm is Gumbel noise.
fn exponential(uniform: f64) -> f64 {
    -(-uniform).ln_1p()
}

/// A token's log-probability with Gumbel noise.
fn value(row: &SamplerRow, step: u32, token: u32, probability: f64) -> f64 {
    probability.ln() - exponential(uniform(row, step, token)).ln()
}

/// The same, with the probabilities that are wanted.
fn check_against(
    context: &Context,
    what: &str,
    logits: &[f32],
    settings: Settings,
    draws: usize,
    probabilities: &[f64],
) {
    // Where XTC cuts at some steps alone, the rule is not the same at all of them.
    let has_one_rule = !settings.sampler.is_banded() || [0.0, 1.0].contains(&settings.sampler.xtc_probability);
    let drawn = if has_one_rule {
        check_each(context, what, logits, settings, draws.div_ceil(TO_ONE_ON_THE_GPU), probabilities);
        let kept = kept(probabilities);
        (0..draws as u64).map(|row| chosen(&of_row(&settings.sampler, row), 0, &kept)).collect()
    } else {
        draw(context, logits, settings, draws)
    };
    let mut counts = vec![0usize; logits.len()];
    for token in drawn {
        counts[token as usize] += 1;
    }
    let mut tokens: Vec<usize> = (0..logits.len()).collect();
    tokens.sort_by(|a, b| probabilities[*b].total_cmp(&probabilities[*a]));
    // Tokens of neighbouring ranks share a cell, so that each cell expects ten draws.
    let (mut cells, mut cell) = (vec![], (0.0, 0.0));
    for token in tokens {
        let expected = probabilities[token] * draws as f64;
        assert!(expected > 0.0 || counts[token] == 0, "{what}: token {token} is cut off and was drawn");
        assert!(
            expected < 30.0 || counts[token] > 0,
            "{what}: token {token} was not drawn, expected {expected:.1} times"
        );
        cell = (cell.0 + expected, cell.1 + counts[token] as f64);
        if cell.0 >= 10.0 {
            cells.push(std::mem::take(&mut cell));
        }
    }
    let last = cells.last_mut().unwrap();
    *last = (last.0 + cell.0, last.1 + cell.1);
    let chi_square: f64 = cells.iter().map(|(expected, count)| (count - expected).powi(2) / expected).sum();
    let degrees = cells.len() as f64 - 1.0;
    let kept = probabilities.iter().filter(|probability| **probability > 0.0).count();
    println!("{what}: {kept} tokens kept, chi-square {chi_square:.1} of {degrees} degrees of freedom");
    if degrees > 0.0 {
        // Wilson, Hilferty 1931: the cube root is nearly normal. Four sigma on either side.
        let spread = 2.0 / (9.0 * degrees);
        let sigmas = ((chi_square / degrees).cbrt() - (1.0 - spread)) / spread.sqrt();
        assert!(sigmas.abs() < 4.0, "{what}: chi-square {chi_square:.1} of {degrees} is {sigmas:.1} sigma off");
    }
}

fn random_logits(rng: &mut Rng, n: usize, scale: f32) -> Vec<f32> {
    // Sums of uniform numbers are nearly normal.
    (0..n).map(|_| scale * (0..4).map(|_| rng.signed()).sum::<f32>()).collect()
}

#[test]
fn frequencies_follow_the_distribution() {
    let context = adapter::context(true);
    let mut rng = Rng(51);
    let logits = random_logits(&mut rng, 101, 1.5);
    for (what, settings) in [
        ("greedy", SamplingParams { temperature: 1e-30, ..all() }),
        ("temperature 0.7", SamplingParams { temperature: 0.7, ..all() }),
        ("temperature 2", SamplingParams { temperature: 2.0, ..all() }),
        ("top_k 7", SamplingParams { top_k: 7, ..all() }),
        ("top_k 60", SamplingParams { top_k: 60, temperature: 1.7, ..all() }),
        ("top_k beyond the vocabulary", SamplingParams { top_k: 1000, ..all() }),
        ("top_p 0.6", SamplingParams { top_p: 0.6, ..all() }),
        ("top_p 0.99", SamplingParams { top_p: 0.99, temperature: 1.3, ..all() }),
        ("top_p 0.0001", SamplingParams { top_p: 0.0001, ..all() }),
        ("min_p 0.1", SamplingParams { min_p: 0.1, ..all() }),
        ("top_n_sigma 1", SamplingParams { top_n_sigma: 1.0, ..all() }),
        ("top_n_sigma 2 at a temperature", SamplingParams { top_n_sigma: 2.0, temperature: 1.8, ..all() }),
        ("top_p 0.7 of what top_n_sigma keeps", SamplingParams { top_n_sigma: 1.5, top_p: 0.7, ..all() }),
        ("dynatemp 0.5 around 0.8", SamplingParams { dynatemp_range: 0.5, temperature: 0.8, ..all() }),
        (
            "min_p 0.05 at a dynatemp of what top_n_sigma keeps",
            SamplingParams { dynatemp_range: 1.0, dynatemp_exponent: 2.0, top_n_sigma: 2.0, min_p: 0.05, ..all() },
        ),
        ("top_k 20, top_p 0.8", SamplingParams { top_k: 20, top_p: 0.8, ..all() }),
        (
            "all of them",
            SamplingParams { top_k: 50, top_p: 0.95, min_p: 0.02, temperature: 0.8, seed: 1 << 50, ..all() },
        ),
    ] {
        check(&context, what, &logits, settings, DRAWS);
    }
}

#[test]
fn bands_follow_the_distribution() {
    let context = adapter::context(true);
    let mut rng = Rng(54);
    let logits = random_logits(&mut rng, 101, 1.5);
    let typical = |typical_p| SamplingParams { typical_p, ..all() };
    let excluding = SamplingParams { xtc_probability: 1.0, xtc_threshold: 0.03, ..all() };
    let some = SamplingParams { xtc_probability: 0.4, xtc_threshold: 0.05, ..all() };
    // So that what is allowed stays what it is.
    let mirostat = SamplingParams { mirostat: Some(Mirostat { tau: 3.0, eta: 1e-20 }), ..all() };
    let cut = SamplingParams { top_k: 40, top_p: 0.95, min_p: 0.01, temperature: 1.2, ..all() };
    for (what, sampler, mu) in [
        ("typical_p 0.3", typical(0.3), 0.0),
        ("typical_p 0.9", SamplingParams { temperature: 0.6, ..typical(0.9) }, 0.0),
        ("typical_p 0.0001", typical(0.0001), 0.0),
        ("typical_p 0.8 of what others keep", SamplingParams { typical_p: 0.8, ..cut }, 0.0),
        ("typical_p 0.8 of what top_n_sigma keeps", SamplingParams { top_n_sigma: 2.0, ..typical(0.8) }, 0.0),
        ("XTC always", excluding, 0.0),
        ("XTC sometimes", some, 0.0),
        (
            "XTC of what others keep",
            SamplingParams { typical_p: 0.9, xtc_probability: 0.4, xtc_threshold: 0.05, ..cut },
            0.0,
        ),
        ("XTC that no two tokens reach", SamplingParams { xtc_threshold: 0.51, ..excluding }, 0.0),
        ("mirostat at 4 bits", mirostat, 4.0),
        ("mirostat at 6.5 bits", SamplingParams { temperature: 1.4, ..mirostat }, 6.5),
        ("mirostat at none", mirostat, -1.0),
    ] {
        check(&context, what, &logits, Settings { sampler, mu }, DRAWS);
    }
    // Levels of equal logits are kept whole.
    let levels: Vec<f32> = (0..200).map(|token| (token / 40) as f32 * 0.5).collect();
    check(&context, "levels, typical_p 0.4", &levels, typical(0.4), DRAWS);
    check(&context, "levels, XTC", &levels, SamplingParams { xtc_threshold: 0.006, ..excluding }, DRAWS);
}

/// Logits as penalties, biases and bans change them, in plain words.
#[test]
fn adjusted_logits_follow_the_distribution() {
    let context = adapter::context(true);
    let mut rng = Rng(55);
    let vocabulary = 61;
    let logits = random_logits(&mut rng, vocabulary, 1.5);
    // Tokens 0 to 19 stand in the prompt, of which 10 to 19, and 20 to 29 twice, in the answer.
    let text: Vec<u32> = (0..20).chain(10..30).chain(20..30).collect();
    let answer = &text[20..];
    let no_penalties = Penalties::default();
    let with = |penalties, dry| SamplerRow {
        answer_start: 20,
        ..SamplerRow::new(&SamplingParams { penalties, dry, ..all() })
    };
    let none = with(no_penalties, Dry::default());
    let mut biases = vec![0f32; vocabulary];
    (biases[3], biases[40], biases[41]) = (2.5, -1.5, f32::NEG_INFINITY);
    let plain = vec![0f32; vocabulary];
    let in_text = |token: usize| text.contains(&(token as u32));
    let times = |token: usize| answer.iter().filter(|of| **of == token as u32).count() as f32;
    let penalized = |token: usize, x: f32| match in_text(token) {
        true if x > 0.0 => x / 1.4,
        true => x * 1.4,
        false => x,
    };
    // The text ends with 27 28 29 after having ended with it before: 20 would go on with a repetition of ten tokens.
    let dry = Dry { multiplier: 0.5, base: 1.3, ..Dry::default() };
    let penalties = |penalties| with(penalties, Dry::default());
    type Adjusted<'a> = &'a dyn Fn(usize, f32) -> f32;
    let ends_early = SamplerRow { min_tokens: 31, ..none };
    let cases: [(&str, SamplerRow, &[f32], Adjusted); 7] = [
        ("biases and a ban", none, &biases, &|token, x| x + biases[token]),
        ("repetition", penalties(Penalties { repetition: 1.4, ..no_penalties }), &plain, &penalized),
        (
            "frequency and presence",
            penalties(Penalties { frequency: 0.6, presence: 0.3, ..no_penalties }),
            &plain,
            &|token, x| {
                if times(token) > 0.0 { x - 0.6 * times(token) - 0.3 } else { x }
            },
        ),
        (
            "frequency in a window",
            penalties(Penalties { window: 10, frequency: 0.9, ..no_penalties }),
            &plain,
            &|token, x| {
                if (20..30).contains(&token) { x - 0.9 } else { x }
            },
        ),
        ("DRY", with(no_penalties, dry), &plain, &|token, x| {
            if token == 20 { x - 0.5 * 1.3f32.powi(10 - 2) } else { x }
        }),
        ("before min_tokens", ends_early, &plain, &|token, x| {
            if token == 7 || token == 9 { f32::NEG_INFINITY } else { x }
        }),
        ("bad words", none, &plain, &|token, x| if token == 33 { f32::NEG_INFINITY } else { x }),
    ];
    for (what, settings, biases, wanted) in cases {
        let wanted: Vec<f32> = logits.iter().enumerate().map(|(token, x)| wanted(token, *x)).collect();
        // The first is what the text ends with; of the second the first token is not.
        let words: &[Vec<u32>] = if what == "bad words" { &[vec![28, 29, 33], vec![27, 29, 34]] } else { &[] };
        let adjusted = adjust(&context, &logits, &text, 30, &settings, biases, words);
        for (token, (got, wanted)) in adjusted.iter().zip(&wanted).enumerate() {
            assert!((got - wanted).abs() < 1e-5 || got == wanted, "{what}: token {token} has {got}, wanted {wanted}");
        }
        let probabilities = distribution(&wanted, &all().into());
        check_against(&context, what, &adjusted, all().into(), DRAWS, &probabilities);
    }
}

/// The logits after a text whose last token a step takes in, which is step `step` of the answer.
fn adjust(
    context: &Context,
    logits: &[f32],
    text: &[u32],
    step: u32,
    settings: &SamplerRow,
    biases: &[f32],
    words: &[Vec<u32>],
) -> Vec<f32> {
    let tensor = |host: HostTensor| context.tensor(&host).unwrap();
    let n = logits.len();
    let settings = tensor(SamplerRow::tensor(&[*settings]));
    let lists = tensor(HostTensor::u32(&[1, AdjustLists::WORDS], &AdjustLists::words(&[7, 9], words).unwrap()));
    let state = tensor(HostTensor::u32(&[1, 4], &[text.len() as u32 - 1, step, 0, 0]));
    let token = tensor(HostTensor::u32(&[1], &text[text.len() - 1..]));
    let mut before = text[..text.len() - 1].to_vec();
    before.resize(100, 5);
    let history = tensor(HostTensor::u32(&[1, 100], &before));
    let marks = context.zeros(Desc::u32(&[1, 2 * n])).unwrap();
    let breakers = DryBreakerWords::words(n, &[], &[], &[], &[]).unwrap();
    let breakers = tensor(HostTensor::u32(&[1, DryBreakerWords::words_of(n)], &breakers));
    let biases = tensor(HostTensor::f32(&[1, n], biases));
    let logits = tensor(HostTensor::f32(&[1, n], logits));
    let run = |op: &dyn rillm::tensor::Op, inputs: &[&Tensor]| context.run(op, inputs).unwrap();
    run(&ops::AdjustMarks { advance: 1, appends: true }, &[&settings, &lists, &state, &token, &history, &marks]);
    run(&ops::DryMarks { advance: 1 }, &[&settings, &state, &history, &breakers, &marks]);
    let adjusted = run(&ops::AdjustLogits, &[&logits, &settings, &biases, &marks]).remove(0);
    pollster::block_on(context.readback(&[&adjusted])).unwrap()[0].to_f32().unwrap()
}

/// What is no finite number stays what it is, whatever is banned; and what leaves nothing is no choice.
#[test]
fn nothing_and_no_number_are_no_choice() {
    let context = adapter::context(true);
    let logits = [f32::NAN, f32::NEG_INFINITY, f32::INFINITY, 1.0, -0.0, f32::MIN, 2.0];
    let biases = [f32::NEG_INFINITY, 5.0, f32::NEG_INFINITY, f32::NEG_INFINITY, 0.0, 0.0, 0.5];
    let adjusted = adjust(&context, &logits, &[1, 2], 0, &SamplerRow::new(&all()), &biases, &[]);
    let wanted = [f32::NAN, f32::NEG_INFINITY, f32::INFINITY, f32::NEG_INFINITY, -0.0, f32::MIN, 2.5];
    let bits = |logits: &[f32]| logits.iter().map(|logit| logit.to_bits()).collect::<Vec<u32>>();
    assert_eq!(bits(&adjusted), bits(&wanted));
    let banded = |sampler| SamplingParams { typical_p: 0.9, xtc_probability: 0.5, ..sampler };
    for sampler in
        [all(), SamplingParams { temperature: 0.0, ..all() }, SamplingParams { top_p: 0.9, temperature: 1.7, ..all() }]
    {
        for settings in [sampler, banded(sampler)] {
            let none = [[f32::NEG_INFINITY; 5], [f32::MIN; 5], [0.5, 1.0, f32::NAN, 3.0, f32::NEG_INFINITY]];
            for logits in none {
                // It says so once, and stops.
                assert_eq!(draw(&context, &logits, settings, 3), [u32::MAX, 0, 0], "{logits:?}");
            }
            let one = [f32::MIN, f32::NEG_INFINITY, f32::MIN, -1e30, f32::NEG_INFINITY];
            assert_eq!(draw(&context, &one, settings, 3), [3; 3], "{settings:?}");
        }
    }
}

#[test]
fn equal_logits_are_kept_together() {
    let context = adapter::context(true);
    // Five levels of two hundred: whatever is cut is a whole level.
    let logits: Vec<f32> = (0..1000).map(|token| (token / 200) as f32 * 0.25).collect();
    for (what, settings) in [
        ("top_k 2 of 200 equal ones", SamplingParams { top_k: 2, ..all() }),
        ("top_k 201", SamplingParams { top_k: 201, ..all() }),
        ("top_p 0.5", SamplingParams { top_p: 0.5, ..all() }),
        ("top_k 600, top_p 0.7", SamplingParams { top_k: 600, top_p: 0.7, ..all() }),
    ] {
        check(&context, what, &logits, settings, DRAWS / 4);
    }
    // More equal ones than the list of the border holds.
    let logits: Vec<f32> = (0..20_000).map(|token| (token % 2) as f32).collect();
    let settings = SamplingParams { top_k: 10_001, top_p: 0.95, ..all() };
    check(&context, "two levels of ten thousand", &logits, settings, 500);
}

#[test]
fn frequencies_follow_the_distribution_of_a_large_vocabulary() {
    let context = adapter::context(true);
    let mut rng = Rng(52);
    // Flat, so that the nucleus is most of the vocabulary; a few leading tokens, so that cells differ.
    let mut logits = random_logits(&mut rng, 120_011, 0.4);
    for lead in 0..50 {
        let token = rng.below(logits.len());
        logits[token] = 7.0 - 0.05 * lead as f32;
    }
    for (what, settings, draws) in [
        ("large, temperature 1", all(), FEW_DRAWS),
        ("large, top_k 40", SamplingParams { top_k: 40, ..all() }, FEW_DRAWS),
        ("large, top_p 0.9", SamplingParams { top_p: 0.9, ..all() }, FEW_DRAWS),
        (
            "large, all",
            SamplingParams { top_k: 90_000, top_p: 0.95, min_p: 0.0005, temperature: 1.2, seed: 3, ..all() },
            1_000,
        ),
    ] {
        check(&context, what, &logits, settings, draws);
    }
}

/// Truncation that cuts nothing draws what is drawn without it: the noise is the same.
#[test]
fn seeds_decide_and_truncation_does_not_disturb_them() {
    let context = adapter::context(true);
    let logits = random_logits(&mut Rng(53), 5003, 2.0);
    let tokens = |settings: SamplingParams| draw(&context, &logits, settings, 200);
    let truncated = SamplingParams { top_p: 0.8, top_k: 500, ..all() };
    assert_eq!(tokens(truncated), tokens(truncated));
    assert_ne!(tokens(truncated), tokens(SamplingParams { seed: 8, ..truncated }));
    assert_ne!(tokens(truncated), tokens(SamplingParams { seed: 7 | 1 << 32, ..truncated }));
    assert_eq!(tokens(SamplingParams { top_k: 5003, ..all() }), tokens(all()));
}
