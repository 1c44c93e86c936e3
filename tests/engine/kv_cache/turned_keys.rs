//! What a shift makes of a cache, by logits.

use rillm::Code;
use rillm::model::KvFormat;
use rillm::model::state::Shift;

use super::{Loaded, NOT_SHIFTED, adapter, models, prompt, worst_row};

/// Models with attention over latents.
const LATENTS: [&str; 5] = ["deepseek_v2", "deepseek_v3", "glm4_moe_lite", "minicpm3", "youtu"];

/// What a token makes of a context whose first tokens were dropped is what it makes of the whole context where it sees no more than
/// the tokens that are left: rope says how far apart tokens stand and nothing of where. So a window, which the kernels of attention
/// know of, is the reference for keys that were turned.
fn a_shift_is_a_window(model: &str, joined: bool, format: KvFormat, dropped: usize) -> f64 {
    const LENGTH: usize = 45;
    const CAPACITY: usize = 48;
    let context = adapter::context(true);
    let ids = prompt(LENGTH + 1);
    let (text, next) = ids.split_at(LENGTH);
    let whole = Loaded::new(&context, model, joined, format, CAPACITY, None);
    whole.forward(text, 0);
    let windowed = Loaded::new(&context, model, joined, format, CAPACITY, Some(LENGTH - dropped + 1));
    let wanted = windowed.forward_on(&whole.cache, next, LENGTH);
    whole.transformer.shift(&whole.cache, Shift { sinks: 0, dropped, length: LENGTH }).unwrap();
    let got = whole.forward(next, LENGTH - dropped);
    worst_row(&got, &wanted, wanted.len())
}

#[test]
fn shifted_keys_are_those_of_the_new_positions() {
    for model in models() {
        // Ministral's queries are scaled by where they stand, so that a window at other positions is no reference.
        if NOT_SHIFTED.contains(&model.as_str()) || model == "ministral3" {
            continue;
        }
        // Turned keys are rounded again, which costs about half of what it costs to round once. A latent is key and value of all heads, so
        // that rounding it once costs 2e-2 where it costs 8e-3 with keys and values apart (medians over 24 prompts).
        let most_of_blocks = if LATENTS.contains(&model.as_str()) { 5e-2 } else { 2e-2 };
        // Half of it, at once; and little of it, in several runs that don't overlap. What is turned is the same with ops joined and not, so each
        // takes some.
        for (joined, format, dropped, most) in [
            (false, KvFormat::F32, 23, 1e-5),
            (true, KvFormat::F32, 7, 1e-5),
            (false, KvFormat::F16, 7, 2e-3),
            (true, KvFormat::Q8_0, 7, most_of_blocks),
        ] {
            let error = a_shift_is_a_window(&model, joined, format, dropped);
            println!("{model}, joined {joined}, {format:?}, {dropped} dropped: {error:.1e}");
            assert!(error < most, "{model}, joined {joined}, {format:?}, {dropped} dropped: {error:.2e}");
        }
    }
}

/// The sinks and what lies past the context stay as they were, and nothing is moved where nothing is left.
#[test]
fn sinks_stay_where_they_are() {
    let context = adapter::context(true);
    for format in [KvFormat::F32, KvFormat::F16, KvFormat::Q8_0] {
        let loaded = Loaded::new(&context, "qwen3", true, format, 20, None);
        loaded.forward(&prompt(19), 0);
        let (k, v) = loaded.cache.kv().layer(1);
        let read = || {
            let read = pollster::block_on(context.readback(&[k, v])).unwrap();
            read.iter().map(|tensor| tensor.to_f32().unwrap()).collect::<Vec<_>>()
        };
        let row = k.shape().dims()[1];
        let before = read();
        loaded.transformer.shift(&loaded.cache, Shift { sinks: 4, dropped: 7, length: 18 }).unwrap();
        let after = read();
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(before[..4 * row], after[..4 * row], "{format:?}");
            assert_eq!(before[11 * row..], after[11 * row..], "{format:?}");
        }
        assert_eq!(before[1][11 * row..18 * row], after[1][4 * row..11 * row], "values are only moved, {format:?}");
        assert_ne!(before[0][11 * row..18 * row], after[0][4 * row..11 * row], "keys are turned, {format:?}");
        loaded.transformer.shift(&loaded.cache, Shift { sinks: 4, dropped: 14, length: 18 }).unwrap();
        assert_eq!(read(), after, "all but the sinks are dropped, {format:?}");
    }
}

#[test]
fn learned_positions_are_refused() {
    let context = adapter::context(true);
    let loaded = Loaded::new(&context, "gpt2", true, KvFormat::F32, 20, None);
    let error = loaded.transformer.shift(&loaded.cache, Shift { sinks: 4, dropped: 7, length: 18 }).unwrap_err();
    assert_eq!(error.code(), Code::InvalidRequest);
    assert!(error.message().contains("context_shift: the positions of gpt2 are learned"), "{error}");
}
