//! Makes the package's TypeScript types of trainings, as the engine's are made (`engine/api/typescript.rs`).

use super::api::{CheckpointOptions, HeldOutLoss, LoraTraining, TrainingPlan, TrainingStep};
use super::memory::TrainingMemory;
use super::schedule::Schedule;
use crate::engine::typescript::{File, Role, check_file, one};

#[test]
fn what_is_generated_is_up_to_date() {
    let options =
        [one::<LoraTraining>(Role::Options), one::<CheckpointOptions>(Role::Options), one::<Schedule>(Role::Options)];
    let answers = [
        one::<TrainingPlan>(Role::Answer),
        one::<TrainingMemory>(Role::Answer),
        one::<TrainingStep>(Role::Answer),
        one::<HeldOutLoss>(Role::Answer),
    ];
    let text = [options.as_slice(), answers.as_slice()].concat().join("\n");
    check_file(
        &File { name: "training", about: "What an adapter is trained with, and what a training tells.", text },
        &[],
    );
}
