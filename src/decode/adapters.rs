//! Which adapters a sequence runs with, and their scales on the GPU: a row for each sequence, which kernels read.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use futures_util::lock::Mutex;

use super::prefill_pace::MAX_TOKENS;
use crate::error::Result;
use crate::model::Transformer;
use crate::model::adapters::{ActiveAdapters, Adapter, AdapterFile, MAX_ADAPTERS};
use crate::tensor::{Desc, Tensor};

/// Adapters with their scales, none of which is 0. Keys and values of a text depend on them, so that a text without them is another text.
#[derive(Clone, Default)]
pub struct AdapterSet {
    scaled: Vec<(Rc<Adapter>, f32)>,
    /// [sequences, MAX_ADAPTERS]; `None` if no adapter was ever loaded.
    scales: Option<Tensor>,
}

/// What tells two sets apart, also after another load; 0 for no adapters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AdapterKey(pub u64);

impl AdapterSet {
    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.scaled.is_empty()
    }

    /// The adapters and their scales.
    pub fn iter(&self) -> impl Iterator<Item = (&Rc<Adapter>, f32)> {
        self.scaled.iter().map(|(adapter, scale)| (adapter, *scale))
    }

    /// What tells it from other sets.
    pub fn key(&self) -> AdapterKey {
        let mut words: Vec<[u64; 2]> =
            self.iter().map(|(adapter, scale)| [adapter.fingerprint(), scale.to_bits().into()]).collect();
        words.sort_unstable();
        let mut hash = 0u64;
        // FNV-1a of 64 bits.
        for byte in words.iter().flatten().flat_map(|word| word.to_le_bytes()) {
            hash = if hash == 0 { 0xcbf2_9ce4_8422_2325 } else { hash };
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        AdapterKey(hash)
    }

    /// What passes with these compute.
    pub fn active(&self) -> Option<ActiveAdapters> {
        let scales = self.scales.as_ref().filter(|_| !self.is_empty())?;
        Some(ActiveAdapters::new(self.scaled.iter().map(|(adapter, _)| adapter.clone()), scales.clone()))
    }

    /// Writes the scales of a sequence with this number.
    pub fn write(&self, transformer: &Transformer, sequence: usize) -> Result<()> {
        let Some(scales) = &self.scales else { return Ok(()) };
        let mut row = [0f32; MAX_ADAPTERS];
        for (adapter, scale) in self.iter() {
            row[adapter.place()] = scale;
        }
        transformer.context().write(scales, sequence * MAX_ADAPTERS, bytemuck::cast_slice(&row))
    }
}

/// The adapters of a decoder, as far as anybody still holds them.
pub struct AdapterHome {
    sequences: usize,
    /// Made when the first adapter is loaded.
    scales: RefCell<Option<Tensor>>,
    /// By place.
    places: RefCell<[Weak<Adapter>; MAX_ADAPTERS]>,
    /// One is loaded at a time.
    loading: Mutex<()>,
}

impl AdapterHome {
    /// For this number of sequences.
    pub fn new(sequences: usize) -> Self {
        Self { sequences, scales: RefCell::default(), places: RefCell::default(), loading: Mutex::new(()) }
    }

    /// Loads an adapter. Until it is dropped it keeps a place.
    pub async fn load(
        &self,
        transformer: &Transformer,
        file: &AdapterFile<'_>,
        progress: &mut dyn FnMut(u64, u64) -> Result<()>,
    ) -> Result<Rc<Adapter>> {
        let _turn = self.loading.lock().await;
        let place = self.places.borrow().iter().position(|held| held.strong_count() == 0);
        let Some(place) = place else {
            bail!(InvalidRequest, "{MAX_ADAPTERS} adapters are loaded, which is the most; unload one")
        };
        if self.scales.borrow().is_none() {
            let scales = transformer.context().zeros(Desc::f32(&[self.sequences, MAX_ADAPTERS]))?;
            *self.scales.borrow_mut() = Some(scales);
        }
        let adapter = Rc::new(Adapter::load(transformer, file, (place, MAX_TOKENS), progress).await?);
        self.places.borrow_mut()[place] = Rc::downgrade(&adapter);
        Ok(adapter)
    }

    /// These adapters with these scales; those of scale 0 are left out.
    pub fn set(&self, scaled: impl IntoIterator<Item = (Rc<Adapter>, f32)>) -> AdapterSet {
        let scaled: Vec<(Rc<Adapter>, f32)> = scaled.into_iter().filter(|(_, scale)| *scale != 0.0).collect();
        AdapterSet { scaled, scales: self.scales.borrow().clone() }
    }
}
