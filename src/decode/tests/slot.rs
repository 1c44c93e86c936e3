//! What a slot's steps leave behind.

use super::*;
use crate::decode::adapters::AdapterKey;
use crate::tensor::HostTensor;

/// What several steps leave: state, token, ring, and the caches of all layers.
fn run(
    decoder: &Rc<Decoder>,
    prompt: &[u32],
    settings: &SamplingParams,
    ending: &Ending,
    steps: usize,
) -> Vec<Vec<u32>> {
    let mut slot = pollster::block_on(decoder.slots.take(AdapterKey::default(), &[])).unwrap();
    slot.forget();
    let (context, transformer) = (&decoder.context, &decoder.transformer);
    let left = pollster::block_on(async {
        slot.configure(transformer, settings, &Rc::default(), ending).await.unwrap();
        let logits = slot.pass(transformer, prompt, 0).unwrap();
        slot.choose_after(context, &logits, prompt.len(), false).unwrap();
        for _ in 1..steps {
            slot.step(context).unwrap();
        }
        context.readback(&slot.tensors(transformer.config().n_layers)).await.unwrap()
    });
    decoder.slots.give_back(slot);
    let words = |host: &HostTensor| bytemuck::pod_collect_to_vec::<u8, u32>(&host.bytes);
    left.iter().map(words).collect()
}

/// Steps past the end don't change the position, the step, the token, the ring or the cache.
#[test]
fn nothing_moves_past_the_end() {
    let decoder = tiny(1);
    let truncated = SamplingParams { top_p: 0.9, seed: 5, temperature: 1.5, ..SamplingParams::default() };
    for settings in [SamplingParams::greedy(), SamplingParams { seed: 3, ..Default::default() }, truncated] {
        let unending = Ending { stops: vec![], steps: usize::MAX };
        let prompt = [11, 45, 78, 102];
        // Another text's values are in the ring and the caches before.
        let before = || run(&decoder, &[7, 99, 3, 200], &settings, &unending, 24);
        before();
        let all = run(&decoder, &prompt, &settings, &unending, 24);
        assert_eq!(all[0][..3], [4 + 23, 24, 0]);
        let answer = &all[2][..24];
        // A token that first occurs somewhere in the middle.
        let at = (4..20).find(|at| !answer[..*at].contains(&answer[*at])).unwrap();
        before();
        let until = run(&decoder, &prompt, &settings, &unending, at + 1);
        assert!(all[3..] != until[3..], "steps write to the caches");
        let by_token = Ending { stops: vec![251, answer[at], 250], steps: usize::MAX };
        for ending in [by_token, Ending { stops: vec![], steps: at + 1 }] {
            let other = before();
            let ended = run(&decoder, &prompt, &settings, &ending, 24);
            assert_eq!(ended[0][..3], [until[0][0], at as u32 + 1, 1], "{ending:?}");
            assert_eq!(ended[1], [answer[at]]);
            assert_eq!(ended[2][..=at], answer[..=at]);
            assert_eq!(ended[2][at + 1..], other[2][at + 1..]);
            for (layer, (ended, until)) in ended.iter().zip(&until).enumerate().skip(3) {
                assert!(ended == until, "cache {layer}");
            }
        }
    }
}
