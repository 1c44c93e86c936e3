//! Which tokens are drawn, and how often: thousands of draws of each sampler against the exact distribution, which plain
//! loops over the sorted vocabulary compute. Every draw is deterministic, so these tests pass or fail the same each time.
#![cfg(not(target_arch = "wasm32"))]

mod adapter;

use rillm::tensor::{Context, Desc, HostTensor, Rng, SampleSettings, Tensor, ops};

const DRAWS: usize = 5_000;
/// Where a draw takes long on a software adapter.
const FEW_DRAWS: usize = 2_000;
/// Draws recorded before they are waited for.
const AT_ONCE: usize = 500;

const ALL: SampleSettings = SampleSettings { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 7 };

fn is_truncated(settings: &SampleSettings) -> bool {
    settings.top_k > 0 || settings.top_p < 1.0 || settings.min_p > 0.0
}

/// The tokens of `count` steps on the GPU.
fn draw(context: &Context, logits: &[f32], settings: &SampleSettings, count: usize) -> Vec<u32> {
    let tensor = |host: HostTensor| context.tensor(&host).unwrap();
    let logits = tensor(HostTensor::f32(&[1, logits.len()], logits));
    let words = tensor(HostTensor::u32(&[SampleSettings::WORDS], &settings.words()));
    let [state, token, ring] = [4, 1, count].map(|n| context.zeros(Desc::u32(&[n])).unwrap());
    let run = |op: &dyn rillm::tensor::Op, inputs: &[&Tensor]| context.run(op, inputs).unwrap();
    // What does not depend on the step is done once.
    let tally = run(&ops::SampleRange, &[&logits]).remove(0);
    run(&ops::SampleHistogram, &[&logits, &words, &tally]);
    let step = || {
        if is_truncated(settings) {
            let split = run(&ops::SampleSplit, &[&logits, &words, &state, &tally]);
            let resolve = ops::SampleResolve { advance: 1 };
            run(&resolve, &[&logits, &words, &split[0], &split[1], &split[2], &state, &token, &ring]);
        } else {
            let partial = run(&ops::SamplePartial, &[&logits, &words, &state]);
            run(&ops::SampleMerge { advance: 1 }, &[&partial[0], &partial[1], &words, &state, &token, &ring]);
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

/// The probability of each token: temperature, top-k, top-p of what that leaves, min-p.
fn distribution(logits: &[f32], settings: &SampleSettings) -> Vec<f64> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
    let largest = f64::from(logits[order[0]]);
    let weight = |token: usize| ((f64::from(logits[token]) - largest) / f64::from(settings.temperature)).exp();
    let cut = |order: &mut Vec<usize>, kept: usize| {
        // Equal logits stay together.
        let last = logits[order[kept - 1]];
        order.retain(|token| logits[*token] >= last);
    };
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
    let total: f64 = order.iter().map(|token| weight(*token)).sum();
    let mut probabilities = vec![0.0; logits.len()];
    for token in order {
        probabilities[token] = weight(token) / total;
    }
    probabilities
}

/// Draws and compares: no token that is cut off, each that is likely, and chi-square of the frequencies.
fn check(context: &Context, what: &str, logits: &[f32], settings: &SampleSettings, draws: usize) {
    let probabilities = distribution(logits, settings);
    let mut counts = vec![0usize; logits.len()];
    for token in draw(context, logits, settings, draws) {
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
        ("greedy", SampleSettings { temperature: 1e-30, ..ALL }),
        ("temperature 0.7", SampleSettings { temperature: 0.7, ..ALL }),
        ("temperature 2", SampleSettings { temperature: 2.0, ..ALL }),
        ("top_k 7", SampleSettings { top_k: 7, ..ALL }),
        ("top_k 60", SampleSettings { top_k: 60, temperature: 1.7, ..ALL }),
        ("top_k beyond the vocabulary", SampleSettings { top_k: 1000, ..ALL }),
        ("top_p 0.6", SampleSettings { top_p: 0.6, ..ALL }),
        ("top_p 0.99", SampleSettings { top_p: 0.99, temperature: 1.3, ..ALL }),
        ("top_p 0.0001", SampleSettings { top_p: 0.0001, ..ALL }),
        ("min_p 0.1", SampleSettings { min_p: 0.1, ..ALL }),
        ("top_k 20, top_p 0.8", SampleSettings { top_k: 20, top_p: 0.8, ..ALL }),
        ("all of them", SampleSettings { top_k: 50, top_p: 0.95, min_p: 0.02, temperature: 0.8, seed: 1 << 50 }),
    ] {
        check(&context, what, &logits, &settings, DRAWS);
    }
}

#[test]
fn equal_logits_are_kept_together() {
    let context = adapter::context(true);
    // Five levels of two hundred: whatever is cut is a whole level.
    let logits: Vec<f32> = (0..1000).map(|token| (token / 200) as f32 * 0.25).collect();
    for (what, settings) in [
        ("top_k 2 of 200 equal ones", SampleSettings { top_k: 2, ..ALL }),
        ("top_k 201", SampleSettings { top_k: 201, ..ALL }),
        ("top_p 0.5", SampleSettings { top_p: 0.5, ..ALL }),
        ("top_k 600, top_p 0.7", SampleSettings { top_k: 600, top_p: 0.7, ..ALL }),
    ] {
        check(&context, what, &logits, &settings, DRAWS);
    }
    // More equal ones than the list of the border holds.
    let logits: Vec<f32> = (0..20_000).map(|token| (token % 2) as f32).collect();
    let settings = SampleSettings { top_k: 10_001, top_p: 0.95, ..ALL };
    check(&context, "two levels of ten thousand", &logits, &settings, 500);
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
        ("large, temperature 1", ALL, FEW_DRAWS),
        ("large, top_k 40", SampleSettings { top_k: 40, ..ALL }, FEW_DRAWS),
        ("large, top_p 0.9", SampleSettings { top_p: 0.9, ..ALL }, FEW_DRAWS),
        ("large, all", SampleSettings { top_k: 90_000, top_p: 0.95, min_p: 0.0005, temperature: 1.2, seed: 3 }, DRAWS),
    ] {
        check(&context, what, &logits, &settings, draws);
    }
}

/// Truncation that cuts nothing draws what is drawn without it: the noise is the same.
#[test]
fn seeds_decide_and_truncation_does_not_disturb_them() {
    let context = adapter::context(true);
    let logits = random_logits(&mut Rng(53), 5003, 2.0);
    let tokens = |settings: SampleSettings| draw(&context, &logits, &settings, 200);
    let truncated = SampleSettings { top_p: 0.8, top_k: 500, ..ALL };
    assert_eq!(tokens(truncated), tokens(truncated));
    assert_ne!(tokens(truncated), tokens(SampleSettings { seed: 8, ..truncated }));
    assert_ne!(tokens(truncated), tokens(SampleSettings { seed: 7 | 1 << 32, ..truncated }));
    assert_eq!(tokens(SampleSettings { top_k: 5003, ..ALL }), tokens(ALL));
}
