//! What a dispatch binds.

use super::buffer::BufferSlice;
use super::compile::BindingKind;

/// What is bound at one binding number of a dispatch.
#[derive(Clone)]
pub enum Binding<'a> {
    /// `var<storage, read>`. Weights are bound like this, so they are never a hazard.
    Read(u32, BufferSlice),
    /// `var<storage, read_write>`.
    ReadWrite(u32, BufferSlice),
    /// `var<uniform>` of these bytes.
    Uniform(u32, &'a [u8]),
}

impl Binding<'_> {
    pub(super) fn number_and_kind(&self) -> (u32, BindingKind) {
        match self {
            Binding::Read(number, _) => (*number, BindingKind::Read),
            Binding::ReadWrite(number, _) => (*number, BindingKind::ReadWrite),
            Binding::Uniform(number, _) => (*number, BindingKind::Uniform),
        }
    }

    /// The slice that is bound; `None` for a uniform.
    pub(super) fn slice(&self) -> Option<&BufferSlice> {
        match self {
            Binding::Read(_, slice) | Binding::ReadWrite(_, slice) => Some(slice),
            Binding::Uniform(..) => None,
        }
    }
}
