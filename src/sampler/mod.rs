//! Which tokens are chosen: the settings of a request, the kernels that they need, and the tensors that these read.

mod adjustment;
mod band;
mod features;
pub(crate) mod fields;
mod kernels;
mod logprobs;
mod mask_table;
mod masking;
pub mod ops;
mod params;
mod path;
mod ring;
mod row;
mod rules;
mod sampling;
mod stages;
mod step_logprobs;
mod target;
mod truncation;
mod words;

pub use self::adjustment::{AdjustLists, DryBreakerWords};
pub(crate) use self::features::Features;
pub(crate) use self::kernels::Sampler;
pub(crate) use self::logprobs::{LogprobPlans, LogprobRings, Sampled, sampled};
pub(crate) use self::mask_table::{Allowed, MaskTable};
pub(crate) use self::masking::{MASKS, MaskDelta, Masking};
pub(crate) use self::params::WHOLE_TEXT;
pub use self::params::{Dry, Mirostat, Penalties, SamplingParams};
pub use self::path::SamplerPath;
pub(crate) use self::ring::{RING, ring_ranges};
pub use self::row::SamplerRow;
pub(crate) use self::rules::{DryBreakers, TokenRules};
pub(crate) use self::sampling::Sampling;
pub(crate) use self::step_logprobs::{MOST as MAX_TOP_LOGPROBS, StepLogprobs};
pub(crate) use self::target::{Ending, Target};
pub(crate) use self::words::{breaker_words, check_room};
