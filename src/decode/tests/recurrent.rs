//! The decode loop over a model with recurrent layers and attention. The recurrent layers average the residual stream exponentially. Each
//! token changes the state, so going on from a wrong state gives a wrong answer.

use futures_util::future::join_all;

use super::mixed::{KINDS, Kind, begin, methods, prompt};
use super::*;
use crate::Code;
use crate::model::state::RecurrentLayer;
use crate::tensor::{Capabilities, DType, Desc, HostTensor, Kernel, Op, Reference, Tensor, from_soa, on_cpu, to_soa};

const COLUMNS: usize = 64;
const DECAY: f32 = 0.75;

/// Inputs: x [n, COLUMNS] (changed), position [4] or [n, 4], averages [COLUMNS] or [sequences, COLUMNS] (changed).
#[derive(Clone)]
struct Ema {
    soa: bool,
}

impl Op for Ema {
    fn name(&self) -> &'static str {
        "ema"
    }

    fn mutates(&self) -> &'static [usize] {
        &[0, 2]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        assert!(inputs.len() == 3 && inputs[1].dtype == DType::U32, "{inputs:?}");
        Ok(vec![])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], _: &Capabilities) -> Result<Kernel> {
        let (tokens, columns) = inputs[0].shape.matrix()?;
        let own_sequences = inputs[2].shape.dims().len() == 2 && inputs[1].shape.dims().len() == 2;
        Ok(Kernel {
            template: crate::shader!("ema.wgsl"),
            modules: &[],
            defines: vec![],
            params: vec![tokens as u32, columns as u32, own_sequences.into(), self.soa.into()],
            grid: [columns.div_ceil(64) as u32, 1, 1],
        })
    }

    on_cpu!();
}

impl Reference for Ema {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let own_sequences = inputs[2].shape.dims().len() == 2 && inputs[1].shape.dims().len() == 2;
        let (mut x, position, mut averages) = (inputs[0].to_f32()?, inputs[1].to_u32()?, inputs[2].to_f32()?);
        let mut average = [0.0; COLUMNS];
        for (token, row) in x.chunks_exact_mut(COLUMNS).enumerate() {
            let position = if own_sequences { &position[4 * token..][..4] } else { &position[..4] };
            let kept = if own_sequences { position[3] as usize * COLUMNS } else { 0 };
            let kept = &mut averages[kept..][..COLUMNS];
            if own_sequences || token == 0 {
                average = [0.0; COLUMNS];
                if position[0] != 0 {
                    average.copy_from_slice(kept);
                }
            }
            let mut columns = if self.soa { from_soa(row) } else { row.to_vec() };
            for (average, column) in average.iter_mut().zip(&mut columns) {
                *average = DECAY * *average + (1.0 - DECAY) * *column;
                *column += *average;
            }
            row.copy_from_slice(&if self.soa { to_soa(&columns) } else { columns });
            if position[2] == 0 {
                kept.copy_from_slice(&average);
            }
        }
        inputs[0].set_f32(&x);
        inputs[2].set_f32(&averages);
        Ok(vec![])
    }
}

impl RecurrentLayer for Ema {
    fn state_len(&self) -> usize {
        COLUMNS
    }

    fn run(&self, context: &Context, x: &Tensor, soa: bool, position: &Tensor, state: &Tensor) -> Result<()> {
        context.run(&Ema { soa }, &[x, position, state]).map(|_| ())
    }
}

pub(super) fn recurrent_of(max_sequences: usize) -> Rc<Decoder> {
    let layer = || Box::new(Ema { soa: false });
    tiny_with(max_sequences, KvFormat::F32, |transformer| {
        assert_eq!(transformer.config().n_embd, COLUMNS);
        transformer.with_recurrent(0, layer()).with_recurrent(1, layer())
    })
}

/// The greedy answer, computed by a pass over the whole text for each token: it keeps no state that could be wrong.
fn reference(decoder: &Decoder, prompt: &[u32], longest: usize) -> Vec<u32> {
    let mut text = prompt.to_vec();
    for _ in 0..longest {
        let logits = pollster::block_on(async {
            let (logits, _) = decoder.forward(None, &text, &[], &AdapterSet::default()).await?;
            decoder.context.readback(&[&logits]).await
        });
        let logits = logits.unwrap()[0].to_f32().unwrap();
        let last = &logits[logits.len() - decoder.transformer.config().vocab_size..];
        let best = (0..last.len()).max_by(|a, b| last[*a].total_cmp(&last[*b])).unwrap();
        text.push(best as u32);
    }
    text.split_off(prompt.len())
}

fn begin_plain(decoder: &Rc<Decoder>, prompt: &[u32], longest: usize) -> (SequenceHandle, usize) {
    let (params, asked) = asked(prompt, &SamplingParams::greedy(), longest, false);
    let prefilled = pollster::block_on(decoder.prefill(&asked, &params, None, &Patience::Fails)).unwrap().unwrap();
    let cached = prefilled.cached;
    let last = prompt[prompt.len() - 1];
    let (sequence, _) = decoder.start(prefilled, params, last, 0, Methods::default()).unwrap();
    (sequence, cached)
}

fn answer(decoder: &Rc<Decoder>, prompt: &[u32], longest: usize) -> (Vec<u32>, usize) {
    let (sequence, cached) = begin_plain(decoder, prompt, longest);
    (rest(&sequence).unwrap(), cached)
}

#[test]
fn the_average_changes_the_answer_and_steps_ahead_agree_with_whole_passes() {
    let decoder = recurrent_of(1);
    let wanted = reference(&decoder, &prompt(2), 24);
    assert_eq!(answer(&decoder, &prompt(2), 24).0, wanted);
    assert_ne!(answer(&tiny(1), &prompt(2), 24).0, wanted);
}

/// Dropped steps, half-right drafts, forced tokens and processors, alone and together.
#[test]
fn each_kind_gives_what_it_gives_alone() {
    let decoder = recurrent_of(8);
    let of_kind = |kind: Kind| rest(&begin(&decoder, 2, kind)).unwrap();
    assert_eq!(of_kind(Kind::Plain), reference(&decoder, &prompt(2), 40));
    assert_eq!(of_kind(Kind::Lookup), of_kind(Kind::Plain), "a draft changes nothing");
    for kind in [Kind::Ahead, Kind::AnyMode, Kind::LookupUnderGrammar] {
        assert_eq!(of_kind(kind), of_kind(Kind::Single), "{kind:?}");
    }
    let alone: Vec<Vec<u32>> =
        KINDS.iter().enumerate().map(|(index, kind)| rest(&begin(&decoder, index, *kind)).unwrap()).collect();
    for chosen in [vec![0, 3], vec![0, 1, 2, 3], vec![1, 6, 7], (0..8).collect()] {
        let running: Vec<SequenceHandle> = chosen.iter().map(|index| begin(&decoder, *index, KINDS[*index])).collect();
        let given = pollster::block_on(join_all(running.iter().map(all)));
        for (index, given) in chosen.iter().zip(given) {
            assert_eq!(given.unwrap(), alone[*index], "{:?} of {chosen:?}", KINDS[*index]);
        }
    }
}

/// Whatever a slot did before, a text that shares its beginning goes on as if in an empty slot.
#[test]
fn prefixes_are_reused_from_checkpoints() {
    let decoder = recurrent_of(1);
    let prompt = prompt(5);
    let (whole, _) = answer(&decoder, &prompt, 30);
    let text = [&prompt[..], &whole].concat();
    let mut cached_most = 0;
    for (shared, kind) in
        [(50, Kind::Plain), (60, Kind::Lookup), (45, Kind::Ahead), (20, Kind::Plain), (3, Kind::Single)]
    {
        // The slot gets a part of the text, and an answer that may be left half-way.
        let vocab_size = decoder.transformer.config().vocab_size;
        let begun = start(&decoder, &prompt, &SamplingParams::greedy(), 30, methods(kind, vocab_size)).unwrap();
        for _ in 0..shared % 7 {
            pollster::block_on(begun.sequence.next()).unwrap();
        }
        drop(begun);
        let mut next = text[..shared].to_vec();
        next.extend([201, 7, 33]);
        let (given, cached) = answer(&decoder, &next, 12);
        assert_eq!(given, answer(&recurrent_of(1), &next, 12).0, "{shared} tokens after {kind:?}");
        assert!(cached <= shared);
        cached_most = cached_most.max(cached);
    }
    assert!(cached_most >= prompt.len(), "{cached_most} tokens were reused");
}

#[test]
fn a_prompt_is_taken_over_by_other_choices() {
    let decoder = recurrent_of(3);
    let prompt = prompt(4);
    let (params, asked) = asked(&prompt, &SamplingParams::greedy(), 20, false);
    let first = pollster::block_on(decoder.prefill(&asked, &params, None, &Patience::Fails)).unwrap().unwrap();
    let (result, last) = (first.result.clone(), prompt[prompt.len() - 1]);
    let (first, _) = decoder.start(first, params.clone(), last, 0, Methods::default()).unwrap();
    // The first goes on before the others take over its prompt.
    let Tokens::Some(mut given) = pollster::block_on(first.next()).unwrap() else { panic!() };
    let others: Vec<SequenceHandle> = (0..2)
        .map(|_| {
            let other =
                pollster::block_on(decoder.prefill(&asked, &params, Some(&result), &Patience::Fails)).unwrap().unwrap();
            assert_eq!(other.cached, prompt.len());
            decoder.start(other, params.clone(), last, 0, Methods::default()).unwrap().0
        })
        .collect();
    let all = pollster::block_on(join_all(std::iter::once(&first).chain(&others).map(all)));
    let wanted = answer(&recurrent_of(1), &prompt, 20).0;
    let before: Vec<u32> = given.drain(..).map(|sampled| sampled.token).collect();
    for (index, rest) in all.into_iter().enumerate() {
        let begun = if index == 0 { &before[..] } else { &[] };
        assert_eq!([begun, &rest.unwrap()].concat(), wanted, "choice {index}");
    }
}

fn saved(decoder: &Decoder, tokens: &[u32]) -> (usize, Vec<u8>) {
    let held = pollster::block_on(decoder.hold(tokens, &AdapterSet::default())).unwrap();
    let mut bytes = Vec::new();
    let mut write = |piece: Vec<u8>| {
        bytes.extend(piece);
        Ok(())
    };
    pollster::block_on(held.save(&mut write)).unwrap();
    (held.len(), bytes)
}

fn restored(decoder: &Decoder, bytes: &[u8]) -> Result<usize> {
    // Reads of any length are cut where the source likes.
    pollster::block_on(decoder.restore(&MemorySource::new([b"before ", bytes].concat()), 7, &AdapterSet::default()))
}

#[test]
fn a_sequence_that_was_saved_goes_on_elsewhere() {
    for new in [recurrent_of as fn(usize) -> Rc<Decoder>, tiny] {
        let decoder = new(2);
        let prompt = prompt(6);
        let (given, _) = answer(&decoder, &prompt, 40);
        let text = [&prompt[..], &given[..9]].concat();
        let (held, bytes) = saved(&decoder, &text);
        assert!(held >= prompt.len(), "{held} tokens");
        assert_eq!(saved(&decoder, &text), (held, bytes.clone()), "nothing moved");
        // What saves it keeps what it held. The last token of a prompt is always computed, and the checkpoint before it may be far away; so
        // the text goes on by one token.
        let longer = [&prompt[..], &given[..10]].concat();
        let (rest, cached) = answer(&decoder, &longer, 30);
        assert_eq!((&rest[..], cached >= held), (&given[10..], true));

        let other = new(1);
        assert_eq!(restored(&other, &bytes).unwrap(), held);
        let (rest, cached) = answer(&other, &longer, 30);
        assert_eq!((&rest[..], cached), (&given[10..], held));

        for (cut, wanted) in [
            (0, "cut off"),
            (5, "cut off"),
            (20, "cut off"),
            (bytes.len() - 1, "cut off"),
            (bytes.len() - 4, "cut off"),
            (bytes.len() - 700, "cut off"),
        ] {
            let error = restored(&other, &bytes[..cut]).unwrap_err();
            assert_eq!(error.code(), Code::InvalidFile, "{error}");
            assert!(error.to_string().contains(wanted), "{cut}: {error}");
        }
        let error = restored(&other, &[&bytes[..], &[0; 4]].concat()).unwrap_err();
        assert_eq!(error.code(), Code::InvalidFile, "{error}");
        for at in (0..400).chain(bytes.len() - 400..bytes.len()) {
            let mut wrong = bytes.clone();
            wrong[at] ^= 0x55;
            let error = restored(&other, &wrong).unwrap_err();
            assert_eq!(error.code(), Code::InvalidFile, "byte {at}: {error}");
        }
        // What comes next works.
        assert_eq!(answer(&other, &text, 31).0, given[9..]);
    }
    let (of_recurrent, other) = (recurrent_of(1), tiny(1));
    let (_, bytes) = saved(&of_recurrent, &prompt(1));
    let error = restored(&other, &bytes).unwrap_err();
    assert_eq!(error.code(), Code::SessionMismatch, "{error}");
    assert!(error.to_string().contains("another model"), "{error}");
}

#[test]
fn what_nobody_holds_is_computed_to_be_saved() {
    for new in [recurrent_of as fn(usize) -> Rc<Decoder>, tiny] {
        let text = [prompt(5), prompt(7), prompt(3)].concat();
        let wanted = answer(&new(1), &text, 12).0;
        let (held, bytes) = saved(&new(1), &text);
        assert_eq!(held, text.len());
        let other = new(2);
        assert_eq!(restored(&other, &bytes).unwrap(), text.len());
        assert_eq!(answer(&other, &text, 12).0, wanted);
        for _ in 0..2 {
            assert_eq!(saved(&other, &text[..1]).0, 1);
        }
    }
}

#[test]
fn a_save_that_is_given_up_loses_nothing() {
    let decoder = tiny(1);
    let text = [prompt(5), prompt(7)].concat();
    let wanted = saved(&decoder, &text).1;
    let mut pieces = 0;
    let held = pollster::block_on(decoder.hold(&text, &AdapterSet::default())).unwrap();
    let mut write = |_: Vec<u8>| {
        pieces += 1;
        if pieces == 3 { Err(crate::Error::new(Code::Internal, "full")) } else { Ok(()) }
    };
    assert_eq!(pollster::block_on(held.save(&mut write)).unwrap_err().message(), "full");
    // Nobody else has a slot meanwhile.
    assert_eq!(
        pollster::block_on(decoder.hold(&text, &AdapterSet::default())).err().unwrap().code(),
        Code::InvalidRequest
    );
    drop(held);
    assert_eq!(saved(&decoder, &text), (text.len(), wanted));
}
