//! What several native test binaries share.
#![allow(dead_code, reason = "each binary uses a part of it")]

pub mod adapter;
pub mod corpus;
pub mod engines;
pub mod errors;
pub mod files;
pub mod parity;
pub mod real_models;
pub mod skip;
pub mod soak;
pub mod team;
pub mod words;
