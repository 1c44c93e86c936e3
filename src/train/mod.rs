//! Training of adapters (LoRA) for a model that is loaded: the model's weights stay on the GPU as they are, quantised or not, and what is
//! learned are small matrices beside them.
//!
//! The forward pass is written on arrays (`array`), which know the way back. Products with the model's own matrices are the exception: they
//! run by the model's kernels, and back by `mat_mul_backward`. Layers are computed again on the way back, so that only the residual stream
//! between them is kept.

mod api;
mod checkpoint;
mod data;
mod design;
mod forward;
mod frozen;
mod heap;
mod lora;
mod loss;
mod low_rank;
mod memory;
mod optimizer;
mod schedule;
mod targets;
mod trainer;
#[cfg(test)]
mod typescript;

pub use api::{
    CheckpointOptions, HeldOut, HeldOutLoss, LoraTraining, TrainingCheckpoint, TrainingEvent, TrainingPlan,
    TrainingStep,
};
pub use checkpoint::read_checkpoint;
pub use design::LoraOptions;
pub use heap::HeapRoom;
pub use lora::{TrainedLora, free_after_training, plan_lora, plan_lora_within, train_lora};
pub use loss::Example;
pub use memory::TrainingMemory;
pub use optimizer::AdamWOptions;
pub use schedule::Schedule;
pub use targets::Targets;
pub use trainer::{StepReport, Trainer};

pub use crate::model::adapters::PairValues;
