//! Masks logits: those of tokens that are not allowed become the lowest finite number. It is not minus infinity, so that later results
//! stay numbers. A NaN stays at any token: it shows that the model is broken.

use crate::error::Result;
use crate::sampler::mask_table::{Allowed, MaskTable};
use crate::tensor::{
    Capabilities, Case, CpuTensors, DType, Define, Desc, HostTensor, Kernel, Op, Reference, Rng, expect, grid_2d,
    on_cpu,
};

/// Inputs: logits [rows, vocabulary] f32, masks [tables · n, words] u32, a bit for each token, the first token's the lowest of the
/// first word; table [tables, MaskTable::WORDS] u32; state [rows, 4] u32, of which the step counts, and with several tables the last
/// word, the number of the row's masks and table; chosen [rows, ring] u32, tokens by step; states [rows, ring] u32, of the table,
/// by step: the step's own is written. Output: [rows, vocabulary] f32.
///
/// The state of a step is the one that the last token leads to from the last step's state, or the last step's state itself if
/// `MaskTable::ENTRY` is set in it. `MaskTable::FREE` allows everything, and only an entry leads out of it.
#[derive(Clone)]
pub struct MaskLogits;

/// The number of sequences with masks and a table.
fn tables(inputs: &[Desc]) -> usize {
    inputs[2].shape.elements() / MaskTable::WORDS
}

impl MaskLogits {
    /// Words of a mask for `vocabulary` tokens.
    pub const fn words(vocabulary: usize) -> usize {
        vocabulary.div_ceil(32)
    }
}

impl Op for MaskLogits {
    on_cpu!();

    fn name(&self) -> &'static str {
        "mask_logits"
    }

    fn mutates(&self) -> &'static [usize] {
        &[5]
    }

    fn infer(&self, inputs: &[Desc]) -> Result<Vec<Desc>> {
        let u32 = Some(DType::U32);
        expect("mask_logits", inputs, &[Some(DType::F32), u32, u32, u32, u32, u32])?;
        let ((rows, vocabulary), (_, words)) = (inputs[0].shape.matrix()?, inputs[1].shape.matrix()?);
        let fits = words == Self::words(vocabulary)
            && tables(inputs) > 0
            && inputs[2].shape.elements() == tables(inputs) * MaskTable::WORDS
            && inputs[1].shape.matrix()?.0.is_multiple_of(tables(inputs))
            && inputs[3].shape.elements() == 4 * rows
            && inputs[4].shape.elements().is_multiple_of(rows)
            && inputs[5].shape.elements() == inputs[4].shape.elements();
        if !fits {
            bail!(ShapeMismatch, "mask_logits: {rows} rows of {vocabulary} logits, and {:?}", &inputs[1..]);
        }
        Ok(vec![inputs[0]])
    }

    fn kernel(&self, inputs: &[Desc], _: &[Desc], capabilities: &Capabilities) -> Result<Kernel> {
        let (rows, vocabulary) = inputs[0].shape.matrix()?;
        let ring = inputs[4].shape.elements() / rows;
        let masks = inputs[1].shape.matrix()?.0 / tables(inputs);
        let mut defines = MaskTable::defines();
        if tables(inputs) > 1 {
            defines.push(("TABLES", Define::Flag));
        }
        Ok(Kernel {
            template: crate::shader!("mask_logits.wgsl"),
            modules: &[],
            defines,
            params: [rows * vocabulary, vocabulary, Self::words(vocabulary), ring, masks].map(|n| n as u32).to_vec(),
            grid: grid_2d((rows * vocabulary).div_ceil(64), capabilities.max_workgroups_per_dimension),
        })
    }
}

impl Reference for MaskLogits {
    fn reference(&self, inputs: &mut [HostTensor]) -> Result<Vec<HostTensor>> {
        let tables = inputs[2].shape.elements() / MaskTable::WORDS;
        let masks_of_each = inputs[1].shape.matrix()?.0 / tables;
        let (rows, vocabulary) = inputs[0].shape.matrix()?;
        let ring = inputs[4].shape.elements() / rows;
        let words = Self::words(vocabulary);
        let [masks, table, steps, chosen, mut states] = {
            let word = |input: usize| inputs[input].to_u32();
            [word(1)?, word(2)?, word(3)?, word(4)?, word(5)?]
        };
        let of_tables: Vec<MaskTable> =
            table.chunks(MaskTable::WORDS).map(|words| MaskTable::from_words(words.to_vec())).collect();
        let mut logits = inputs[0].to_f32()?;
        for (row, logits) in logits.chunks_mut(vocabulary).enumerate() {
            let step = steps[4 * row + 1] as usize;
            let last = row * ring + (step + ring - 1) % ring;
            let owner = if tables > 1 { steps[4 * row + 3] as usize } else { 0 };
            let table = &of_tables[owner];
            let now = state_after(table, states[last], chosen[last]);
            states[row * ring + step % ring] = now;
            if now == MaskTable::FREE {
                continue;
            }
            for (token, logit) in logits.iter_mut().enumerate() {
                let is_allowed = match table.allowed(now) {
                    Allowed::All => true,
                    Allowed::One(one) => one as usize == token,
                    Allowed::Mask(mask) => {
                        masks[(owner * masks_of_each + mask as usize) * words + token / 32] >> (token % 32) & 1 == 1
                    }
                };
                if !is_allowed && !logit.is_nan() {
                    *logit = f32::MIN;
                }
            }
        }
        inputs[5].set_u32(&states);
        Ok(vec![HostTensor::f32(inputs[0].shape.dims(), &logits)])
    }

    fn run_on_cpu(&self, mut tensors: CpuTensors<'_>) -> Result<()> {
        let CpuTensors { inputs, outputs, .. } = &mut tensors;
        let [logits, masks, table, steps, chosen, states] = &mut inputs[..] else {
            bail!(Internal, "mask_logits without six inputs")
        };
        let tables = table.desc.shape.elements() / MaskTable::WORDS;
        let masks_of_each = masks.desc.shape.matrix()?.0 / tables;
        let (rows, vocabulary) = logits.desc.shape.matrix()?;
        let ring = chosen.desc.shape.elements() / rows;
        let words = Self::words(vocabulary);
        let (masks, table, steps, chosen) = (masks.u32s()?, table.u32s()?, steps.u32s()?, chosen.u32s()?);
        let states = states.u32s_mut()?;
        let out = outputs.first_mut().ok_or_else(|| err!(Internal, "mask_logits without an output"))?.f32s_mut()?;
        out.copy_from_slice(logits.f32s()?);
        for (row, logits) in out.chunks_mut(vocabulary).enumerate() {
            let step = steps[4 * row + 1] as usize;
            let last = row * ring + (step + ring - 1) % ring;
            let owner = if tables > 1 { steps[4 * row + 3] as usize } else { 0 };
            let table = MaskTable::from_words(table[owner * MaskTable::WORDS..][..MaskTable::WORDS].to_vec());
            let now = state_after(&table, states[last], chosen[last]);
            states[row * ring + step % ring] = now;
            if now == MaskTable::FREE {
                continue;
            }
            let forbid = |logits: &mut [f32]| {
                logits.iter_mut().filter(|logit| !logit.is_nan()).for_each(|logit| *logit = f32::MIN);
            };
            match table.allowed(now) {
                Allowed::All => {}
                Allowed::One(one) => {
                    // Past the end no token is allowed.
                    let at = (one as usize).min(logits.len());
                    forbid(&mut logits[..at]);
                    forbid(&mut logits[(at + 1).min(vocabulary)..]);
                }
                Allowed::Mask(mask) => {
                    let mask = &masks[(owner * masks_of_each + mask as usize) * words..][..words];
                    for (logits, word) in logits.chunks_mut(32).zip(mask) {
                        match *word {
                            u32::MAX => {}
                            0 => forbid(logits),
                            word => {
                                for (bit, logit) in logits.iter_mut().enumerate() {
                                    if word >> bit & 1 == 0 && !logit.is_nan() {
                                        *logit = f32::MIN;
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// The state that a token leads to.
fn state_after(table: &MaskTable, last: u32, token: u32) -> u32 {
    match last & MaskTable::ENTRY {
        0 if last == MaskTable::FREE => MaskTable::FREE,
        0 => table.next(last, token).0,
        _ => last & !MaskTable::ENTRY,
    }
}

const RING: usize = 8;

/// A table whose states allow masks, one token, or all, and have edges.
fn table(vocabulary: usize, rng: &mut Rng) -> MaskTable {
    let mut table = MaskTable::new();
    let allowed = |rng: &mut Rng| match rng.below(4) {
        0 => Allowed::All,
        1 => Allowed::One(rng.below(vocabulary) as u32),
        _ => Allowed::Mask(rng.below(MASKS) as u32),
    };
    for state in 0..MaskTable::STATES as u32 {
        let allowed = allowed(rng);
        table.set_state(state, allowed, rng.below(MaskTable::STATES) as u32);
    }
    // Edges with colliding slots.
    for _ in 0..3000 {
        table.set_edge(rng.below(MaskTable::STATES) as u32, rng.below(vocabulary) as u32, 5);
    }
    table
}

/// Masks of each table.
const MASKS: usize = 3;

/// Rows at steps whose states are reached by an edge, by a fallback, and by an entry, each with a mask, one token, or all.
fn case(rows: usize, vocabulary: usize, tables: usize, rng: &mut Rng) -> Case {
    let words = MaskLogits::words(vocabulary);
    let bits: Vec<u32> = (0..tables * MASKS * words).map(|_| rng.next_u64() as u32).collect();
    let mut of_tables: Vec<MaskTable> = (0..tables).map(|_| table(vocabulary, rng)).collect();
    let (mut steps, mut chosen, mut states) = (vec![], vec![], vec![]);
    for row in 0..rows {
        // Some of them at step 0, and some beyond the ring. Rows are of the tables in another order than theirs.
        let step = [0, 3, RING, 3 * RING + 1][row % 4];
        let owner = if tables > 1 { (row * 5 + 2) % tables } else { row };
        steps.extend([99, step as u32, 0, owner as u32]);
        let mut tokens: Vec<u32> = (0..RING).map(|_| rng.below(vocabulary) as u32).collect();
        let mut before: Vec<u32> = (0..RING).map(|_| rng.below(MaskTable::STATES) as u32).collect();
        let last = (step + RING - 1) % RING;
        let table = &mut of_tables[if tables > 1 { owner } else { 0 }];
        match row % 3 {
            0 => before[last] |= MaskTable::ENTRY,
            1 => _ = table.set_edge(before[last], tokens[last], rng.below(MaskTable::STATES) as u32),
            // A token that no edge can have.
            _ if row % 2 == 0 => tokens[last] = u32::MAX,
            _ => {}
        }
        match row % 5 {
            3 => before[last] = MaskTable::FREE,
            4 => before[last] = MaskTable::FREE | MaskTable::ENTRY,
            _ => {}
        }
        chosen.extend(tokens);
        states.extend(before);
    }
    let table: Vec<u32> = of_tables.iter().flat_map(|table| table.words().to_vec()).collect();
    let inputs = vec![
        rng.tensor(&[rows, vocabulary]),
        HostTensor::u32(&[tables * MASKS, words], &bits),
        HostTensor::u32(&[tables, MaskTable::WORDS], &table),
        HostTensor::u32(&[rows, 4], &steps),
        HostTensor::u32(&[rows, RING], &chosen),
        HostTensor::u32(&[rows, RING], &states),
    ];
    Case::new(MaskLogits, inputs, 0.0)
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng(53);
    let shapes = [
        (1, 1, 1),
        (1, 31, 1),
        (1, 33, 1),
        (3, 257, 1),
        (2, 5003, 2),
        (13, 1009, 1),
        (7, 1009, 8),
        (5, 257, 3),
        (1, 151_937, 1),
    ];
    let of_shape = |(rows, vocabulary, tables)| case(rows, vocabulary, tables, &mut rng);
    shapes.into_iter().map(of_shape).collect()
}
