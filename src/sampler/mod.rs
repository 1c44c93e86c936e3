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
pub use self::features::{Features, Plans};
pub use self::kernels::Sampler;
pub use self::logprobs::{LogprobPlans, LogprobRings, Sampled, sampled};
pub use self::mask_table::{Allowed, MaskTable};
pub use self::masking::{MASKS, MaskDelta, Masking};
pub use self::params::{Dry, MAX_ALLOWED_LENGTH, MAX_TEMPERATURE, Mirostat, Penalties, SamplingParams, WHOLE_TEXT};
pub use self::path::SamplerPath;
pub use self::ring::{RING, ring_ranges};
pub use self::row::SamplerRow;
pub use self::rules::{DryBreakers, MAX_BIAS, TokenRules};
pub use self::sampling::Sampling;
pub use self::step_logprobs::{MOST as MAX_TOP_LOGPROBS, StepLogprobs};
pub use self::target::{Ending, Target};
pub use self::words::{breaker_words, check_room};
