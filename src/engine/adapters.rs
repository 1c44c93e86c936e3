//! The adapters of an engine, by name, and their scales.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use crate::decode::{AdapterSet, Decoder};
use crate::error::{Error, Result};
use crate::model::adapters::{Adapter, AdapterFormat};

/// An adapter that is loaded.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct LoadedAdapter {
    /// What requests call it.
    pub name: String,
    /// The scale in requests that say nothing of adapters; 0 is off.
    pub scale: f32,
    /// The largest rank of its matrices.
    pub rank: usize,
    /// The kind of its files.
    pub format: AdapterFormat,
    /// The kinds of matrices that it adds to, as GGUF files call them: `attn_q`, `ffn_up`.
    pub targets: Vec<String>,
    /// Bytes on the GPU.
    pub bytes: u64,
}

/// What a caller says of an adapter that it loads.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdapterOptions {
    /// What requests call it. Default: the name of its file or folder.
    pub name: Option<String>,
    /// The scale in requests that say nothing of adapters. Default: 1.
    pub scale: Option<f32>,
}

/// In the order in which they were loaded.
#[derive(Default)]
pub(super) struct Adapters(RefCell<Vec<Named>>);

struct Named {
    name: String,
    scale: f32,
    adapter: Rc<Adapter>,
}

impl Adapters {
    /// On the GPU.
    pub fn bytes(&self) -> u64 {
        self.0.borrow().iter().map(|named| named.adapter.bytes()).sum()
    }

    /// Whether an adapter can be called this.
    pub fn check_free(&self, name: &str) -> Result<()> {
        if name.is_empty() {
            bail!(InvalidRequest, "the adapter's name is empty");
        }
        if self.0.borrow().iter().any(|named| named.name == name) {
            bail!(InvalidRequest, "an adapter named {name:?} is loaded already; give another name, or unload that one");
        }
        Ok(())
    }

    fn unknown(&self, name: &str) -> Error {
        let named = self.0.borrow();
        let names: Vec<String> = named.iter().map(|named| format!("{:?}", named.name)).collect();
        let loaded =
            if names.is_empty() { "none is loaded".to_owned() } else { format!("loaded: {}", names.join(", ")) };
        err!(UnknownAdapter, "there is no adapter named {name:?}; {loaded}")
    }

    fn find(&self, name: &str) -> Result<usize> {
        let found = self.0.borrow().iter().position(|named| named.name == name);
        found.ok_or_else(|| self.unknown(name))
    }

    /// Adds one whose name is free and whose scale is finite.
    pub fn push(&self, name: String, scale: f32, adapter: Rc<Adapter>) -> LoadedAdapter {
        let named = Named { name, scale, adapter };
        let info = named.info();
        self.0.borrow_mut().push(named);
        info
    }

    pub fn set_scale(&self, name: &str, scale: f32) -> Result<()> {
        let index = self.find(name)?;
        self.0.borrow_mut()[index].scale = checked_scale(name, scale)?;
        Ok(())
    }

    pub fn remove(&self, name: &str) -> Result<Rc<Adapter>> {
        let index = self.find(name)?;
        Ok(self.0.borrow_mut().remove(index).adapter)
    }

    pub fn list(&self) -> Vec<LoadedAdapter> {
        self.0.borrow().iter().map(Named::info).collect()
    }

    /// Those that a request asks for, by name, or all with their own scales.
    pub fn set(&self, decoder: &Decoder, asked: Option<&BTreeMap<String, f32>>) -> Result<AdapterSet> {
        let named = self.0.borrow();
        let scaled: Vec<(Rc<Adapter>, f32)> = match asked {
            None => named.iter().map(|named| (named.adapter.clone(), named.scale)).collect(),
            Some(asked) => {
                let of = |(name, scale): (&String, &f32)| match named.iter().find(|named| named.name == *name) {
                    Some(named) => Ok((named.adapter.clone(), checked_scale(name, *scale)?)),
                    None => Err(self.unknown(name)),
                };
                asked.iter().map(of).collect::<Result<_>>()?
            }
        };
        Ok(decoder.adapter_set(scaled))
    }

    /// Those that were saved with a session.
    pub fn set_of_session(&self, decoder: &Decoder, saved: Option<&[SessionAdapter]>) -> Result<AdapterSet> {
        let named = self.0.borrow();
        let of = |saved: &SessionAdapter| {
            let is_it = |named: &&Named| fingerprint(&named.adapter) == saved.fingerprint;
            match named.iter().find(is_it) {
                Some(named) => Ok((named.adapter.clone(), saved.scale)),
                None => bail!(
                    SessionMismatch,
                    "the session was saved with the adapter {:?}, which is not loaded: load it to restore the session",
                    saved.name
                ),
            }
        };
        let scaled = saved.unwrap_or_default().iter().map(of).collect::<Result<Vec<(Rc<Adapter>, f32)>>>()?;
        Ok(decoder.adapter_set(scaled))
    }

    /// What a session says of the adapters that it is saved with; nothing if there are none.
    pub fn of_session(&self, set: &AdapterSet) -> Option<Vec<SessionAdapter>> {
        let named = self.0.borrow();
        let of = |(adapter, scale): (&Rc<Adapter>, f32)| {
            let name = named.iter().find(|named| Rc::ptr_eq(&named.adapter, adapter)).map(|named| named.name.clone());
            SessionAdapter { name: name.unwrap_or_default(), scale, fingerprint: fingerprint(adapter) }
        };
        (!set.is_empty()).then(|| set.iter().map(of).collect())
    }
}

impl Named {
    fn info(&self) -> LoadedAdapter {
        LoadedAdapter {
            name: self.name.clone(),
            scale: self.scale,
            rank: self.adapter.rank(),
            format: self.adapter.format(),
            targets: self.adapter.targets().to_vec(),
            bytes: self.adapter.bytes(),
        }
    }
}

/// An adapter of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct SessionAdapter {
    /// What it was called.
    pub name: String,
    /// Its scale.
    pub scale: f32,
    /// Of its numbers: another adapter of this name has another one.
    pub fingerprint: String,
}

fn fingerprint(adapter: &Adapter) -> String {
    format!("{:016x}", adapter.fingerprint())
}

/// The scale, if it is a finite number.
pub(super) fn checked_scale(name: &str, scale: f32) -> Result<f32> {
    if !scale.is_finite() {
        bail!(InvalidRequest, "the scale of the adapter {name:?} is {scale}, wanted a finite number");
    }
    Ok(scale)
}
