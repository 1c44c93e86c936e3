//! The sizes of what recurrent layers compute in place of attention, or beside it: read from the metadata and checked. Their weights and
//! steps are in `mixer/`, their ops in `tensor/ops/recurrent`.

use super::arch::RecurrenceKind;
use super::keys::Keys;
use super::layer_config::MAX_HEADS;
use super::tensor_sizes::MAX_WIDTH;
use crate::error::Result;
use crate::tensor::ops::{GatedDelta, SelectiveScan, ShortConvolution};

/// What the recurrent layers of a model are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Recurrence {
    /// A gated delta net.
    DeltaNet(DeltaNet),
    /// A short convolution between two gates.
    ShortConvolution(ShortConv),
    /// The second form of Mamba.
    Mamba2(Mamba2),
    /// The first form of Mamba.
    Mamba(Mamba),
}

/// The sizes of a Mamba mixer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mamba {
    /// All channels, each with a step.
    pub channels: usize,
    /// The numbers of a channel's state.
    pub state: usize,
    /// The length of the short form of the steps.
    pub rank: usize,
    /// How many tokens the convolution sees, the present one included.
    pub taps: usize,
    /// The ε of norms of steps, B and C that have no weights; `None` if there are none, or if they have weights.
    pub weightless_norm_eps: Option<f32>,
}

/// The sizes of a Mamba-2 mixer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mamba2 {
    /// Heads, each with a step and a decay.
    pub heads: usize,
    /// Channels of a head.
    pub head_dim: usize,
    /// Groups of heads that share B and C, and groups of channels that are normed together.
    pub groups: usize,
    /// The numbers of a channel's state.
    pub state: usize,
    /// How many tokens the convolution sees, the present one included.
    pub taps: usize,
    /// The norm, if there is one, comes before the product with the gate.
    pub norm_first: bool,
    /// Factors of gate, inputs, B, C and steps, as the first matrix gives them.
    pub scales: [f32; 5],
}

/// The sizes of a short convolution between two gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortConv {
    /// n_embd
    pub channels: usize,
    /// How many tokens it sees, the present one included.
    pub taps: usize,
}

/// The sizes of a gated delta net.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaNet {
    /// Heads of queries, and of keys.
    pub key_heads: usize,
    /// Heads of values; a multiple of `key_heads`.
    pub heads: usize,
    /// The length of a query or key.
    pub key_dim: usize,
    /// The length of a value.
    pub value_dim: usize,
    /// How many tokens the convolution sees, the present one included.
    pub taps: usize,
    /// Head h has the key h mod `key_heads`, instead of neighbours sharing one.
    pub tiled: bool,
}

impl Recurrence {
    /// Those of the architecture, if it has any.
    pub(super) fn read(keys: &Keys) -> Result<Option<Self>> {
        match keys.arch.recurrence {
            None => Ok(None),
            Some(RecurrenceKind::DeltaNet { tiled }) => DeltaNet::read(keys, tiled).map(Self::DeltaNet).map(Some),
            Some(RecurrenceKind::ShortConvolution) => ShortConv::read(keys).map(Self::ShortConvolution).map(Some),
            Some(RecurrenceKind::Mamba2) => Mamba2::read(keys).map(Self::Mamba2).map(Some),
            Some(RecurrenceKind::Mamba) => Mamba::read(keys).map(Self::Mamba).map(Some),
        }
    }

    /// What to call it in messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::DeltaNet(_) => "a gated delta net",
            Self::ShortConvolution(_) => "a short convolution",
            Self::Mamba2(_) => "Mamba-2",
            Self::Mamba(_) => "Mamba",
        }
    }

    /// How many f32 each state of a layer has.
    pub fn state_lens(&self) -> Vec<usize> {
        match self {
            Self::DeltaNet(net) => vec![
                ShortConvolution::state_len(net.channels(), net.taps),
                GatedDelta::state_len(net.heads, net.key_dim, net.value_dim),
            ],
            Self::ShortConvolution(conv) => vec![ShortConvolution::state_len(conv.channels, conv.taps)],
            Self::Mamba2(mamba) => vec![
                ShortConvolution::state_len(mamba.channels(), mamba.taps),
                SelectiveScan::state_len(mamba.inner(), mamba.state),
            ],
            Self::Mamba(mamba) => vec![
                ShortConvolution::state_len(mamba.channels, mamba.taps),
                SelectiveScan::state_len(mamba.channels, mamba.state),
            ],
        }
    }

    /// What the convolution sees of a token.
    pub fn channels(&self) -> usize {
        match self {
            Self::DeltaNet(net) => net.channels(),
            Self::ShortConvolution(conv) => conv.channels,
            Self::Mamba2(mamba) => mamba.channels(),
            Self::Mamba(mamba) => mamba.channels,
        }
    }

    /// How many tokens the convolution sees, the present one included.
    pub fn taps(&self) -> usize {
        match self {
            Self::DeltaNet(net) => net.taps,
            Self::ShortConvolution(conv) => conv.taps,
            Self::Mamba2(mamba) => mamba.taps,
            Self::Mamba(mamba) => mamba.taps,
        }
    }

    /// What a layer computes of a token, which its output matrix reads.
    pub fn width(&self) -> usize {
        match self {
            Self::DeltaNet(net) => net.values(),
            Self::ShortConvolution(conv) => conv.channels,
            Self::Mamba2(mamba) => mamba.inner(),
            Self::Mamba(mamba) => mamba.channels,
        }
    }

    /// The rows of the matrix that reads the normed tokens, where it is one.
    pub fn inputs(&self) -> usize {
        match self {
            Self::DeltaNet(net) => net.channels() + net.values() + 2 * net.heads,
            Self::ShortConvolution(conv) => 3 * conv.channels,
            Self::Mamba2(mamba) => mamba.inner() + mamba.channels() + mamba.heads,
            Self::Mamba(mamba) => 2 * mamba.channels,
        }
    }

    /// Heads with a rate of their own.
    pub fn heads(&self) -> usize {
        match self {
            Self::DeltaNet(net) => net.heads,
            Self::ShortConvolution(_) | Self::Mamba(_) => 0,
            Self::Mamba2(mamba) => mamba.heads,
        }
    }

    /// How many numbers its norm has.
    pub fn norm_len(&self) -> usize {
        match self {
            Self::DeltaNet(net) => net.value_dim,
            Self::ShortConvolution(_) | Self::Mamba(_) => 0,
            Self::Mamba2(mamba) => mamba.inner(),
        }
    }
}

impl Recurrence {
    /// The numbers of a state space model's channel.
    pub fn state(&self) -> usize {
        match self {
            Self::DeltaNet(_) | Self::ShortConvolution(_) => 0,
            Self::Mamba2(mamba) => mamba.state,
            Self::Mamba(mamba) => mamba.state,
        }
    }

    /// The length of the short form of a Mamba mixer's steps.
    pub fn rank(&self) -> usize {
        match self {
            Self::DeltaNet(_) | Self::ShortConvolution(_) | Self::Mamba2(_) => 0,
            Self::Mamba(mamba) => mamba.rank,
        }
    }
}

impl Mamba {
    fn read(keys: &Keys) -> Result<Self> {
        let n_embd = keys.dim("embedding_length", MAX_WIDTH)?;
        let (state, taps) = (keys.dim("ssm.state_size", MAX_WIDTH)?, keys.dim("ssm.conv_kernel", MAX_WIDTH)?);
        check_state(keys, state, taps)?;
        // What "auto" stands for.
        let rank = keys.dim_or_zero("ssm.time_step_rank", MAX_WIDTH)?.filter(|rank| *rank > 0);
        // llama.cpp norms them with the ε of all other norms, transformers with one of their own.
        let weightless_norm_eps = match keys.positive_or_none("ssm.dt_b_c_rms_epsilon")? {
            None if keys.metadata.optional_bool(&keys.name("ssm.dt_b_c_rms"))? == Some(true) => {
                Some(keys.norm_epsilon()?)
            }
            own => own,
        };
        let rank = rank.unwrap_or(n_embd.div_ceil(16));
        Ok(Self { channels: inner_size(keys, 1)?, state, rank, taps, weightless_norm_eps })
    }
}

impl ShortConv {
    fn read(keys: &Keys) -> Result<Self> {
        let taps = keys.dim("shortconv.l_cache", MAX_WIDTH)?;
        if !(2..=ShortConvolution::MAX_TAPS).contains(&taps) {
            bail!(
                UnsupportedArchitecture,
                "{} is {taps}: a short convolution over 2 to {} tokens is supported",
                keys.name("shortconv.l_cache"),
                ShortConvolution::MAX_TAPS
            );
        }
        Ok(Self { channels: keys.dim("embedding_length", MAX_WIDTH)?, taps })
    }
}

impl Mamba2 {
    /// All channels.
    pub fn inner(&self) -> usize {
        self.heads * self.head_dim
    }

    /// The inputs of all channels, then B and C of all groups.
    pub fn channels(&self) -> usize {
        self.inner() + 2 * self.groups * self.state
    }

    fn read(keys: &Keys) -> Result<Self> {
        let (heads, groups) = (keys.dim("ssm.time_step_rank", MAX_HEADS)?, keys.dim("ssm.group_count", MAX_HEADS)?);
        let (state, taps) = (keys.dim("ssm.state_size", MAX_WIDTH)?, keys.dim("ssm.conv_kernel", MAX_WIDTH)?);
        let inner = inner_size(keys, heads)?;
        for (key, of, count) in
            [("ssm.inner_size", inner, heads), ("ssm.time_step_rank", heads, groups), ("ssm.inner_size", inner, groups)]
        {
            if !of.is_multiple_of(count) {
                bail!(InvalidMetadata, "{} is {of}, wanted a multiple of {count} heads or groups", keys.name(key));
            }
        }
        check_state(keys, state, taps)?;
        let norm_first = keys.metadata.optional_bool(&keys.name("ssm.norm_before_gate"))?.unwrap_or(false);
        let of_all = keys.multiplier("ssm_in")?;
        let scales = keys.multipliers("ssm")?.map(|scale| scale * of_all);
        Ok(Self { heads, head_dim: inner / heads, groups, state, taps, norm_first, scales })
    }
}

/// How many channels there are. GGUF files have the number; config.json has it, or the length of a head, or a factor of n_embd.
fn inner_size(keys: &Keys, heads: usize) -> Result<usize> {
    if let Some(inner) = keys.dim_or_zero("ssm.inner_size", MAX_WIDTH)?.filter(|inner| *inner > 0) {
        return Ok(inner);
    }
    let above_zero = |key: &str| Ok::<_, crate::Error>(keys.dim_or_zero(key, MAX_WIDTH)?.filter(|number| *number > 0));
    let (factor, of) = match (above_zero("ssm.head_length")?, above_zero("ssm.expand")?) {
        (Some(head), _) => (heads, head),
        (None, Some(factor)) => (factor, keys.dim("embedding_length", MAX_WIDTH)?),
        (None, None) => return Err(keys.missing("ssm.inner_size")),
    };
    match factor.checked_mul(of).filter(|inner| *inner <= MAX_WIDTH) {
        Some(inner) => Ok(inner),
        None => {
            bail!(InvalidMetadata, "a state space model of {factor} times {of} channels, wanted at most {MAX_WIDTH}")
        }
    }
}

/// Refuses what the ops of state space models don't compute.
fn check_state(keys: &Keys, state: usize, taps: usize) -> Result<()> {
    let fits = state.is_multiple_of(4) && state <= SelectiveScan::MAX_STATE;
    if !fits || !(2..=ShortConvolution::MAX_TAPS).contains(&taps) {
        bail!(
            UnsupportedArchitecture,
            "{} has states of {state} numbers and a convolution over {taps} tokens; supported are multiples of 4 up to {} and 2 to {} tokens",
            keys.arch.name,
            SelectiveScan::MAX_STATE,
            ShortConvolution::MAX_TAPS
        );
    }
    Ok(())
}

impl DeltaNet {
    /// Queries, keys and values, which the convolution sees.
    pub fn channels(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.values()
    }

    /// The length of all values together.
    pub fn values(&self) -> usize {
        self.heads * self.value_dim
    }

    /// The keys are those of state space models.
    fn read(keys: &Keys, tiled: bool) -> Result<Self> {
        let (key_heads, heads) = (keys.dim("ssm.group_count", MAX_HEADS)?, keys.dim("ssm.time_step_rank", MAX_HEADS)?);
        let key_dim = keys.dim("ssm.state_size", MAX_WIDTH)?;
        // GGUF files have the length of all values together, config.json that of one.
        let value_dim = match keys.dim_or_zero("ssm.value_length", MAX_WIDTH)? {
            Some(value_dim) if value_dim > 0 => value_dim,
            _ => {
                let all = keys.dim("ssm.inner_size", MAX_WIDTH)?;
                if !all.is_multiple_of(heads) {
                    bail!(
                        InvalidMetadata,
                        "{} is {all}, wanted a multiple of the {heads} heads",
                        keys.name("ssm.inner_size")
                    );
                }
                all / heads
            }
        };
        let taps = keys.dim("ssm.conv_kernel", MAX_WIDTH)?;
        if !heads.is_multiple_of(key_heads) {
            bail!(
                InvalidMetadata,
                "{} is {heads} and {} is {key_heads}, wanted a multiple of it",
                keys.name("ssm.time_step_rank"),
                keys.name("ssm.group_count")
            );
        }
        let fits = |dim: usize| dim.is_multiple_of(4) && dim <= GatedDelta::MAX_DIM;
        if !fits(key_dim) || !fits(value_dim) || !(2..=ShortConvolution::MAX_TAPS).contains(&taps) {
            bail!(
                UnsupportedArchitecture,
                "a gated delta net with keys of {key_dim}, values of {value_dim} and a convolution over {taps} tokens; supported are \
                 multiples of 4 up to {} and 2 to {} tokens",
                GatedDelta::MAX_DIM,
                ShortConvolution::MAX_TAPS
            );
        }
        Ok(Self { key_heads, heads, key_dim, value_dim, taps, tiled })
    }
}
