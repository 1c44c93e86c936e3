//! Models, from their files to the answers. A file is a module, `cargo test --test engine models::` runs those of one.
#![cfg(not(target_arch = "wasm32"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails says so by a panic")]

#[path = "../support/mod.rs"]
mod support;

mod adapters;
mod architectures;
mod bad_requests;
mod bitnet;
mod chat;
mod checkpoint;
mod choices;
mod classifiers;
mod corpus;
mod cpu_team;
mod draft_model;
mod embeddings;
mod encoder_decoders;
mod fidelity;
mod gguf;
mod hub;
mod kv_cache;
mod large_models;
mod latents;
mod logits_processor;
mod logprobs;
mod memory;
mod models;
mod mtp;
mod mutations;
mod penalties;
mod per_layer_embeddings;
mod real_models;
mod recurrent;
mod replay;
mod sequences;
mod sessions;
mod shared_kv;
mod smoothness;
mod speculation;
mod structured;
mod together;
mod tool_calls;
mod training;
