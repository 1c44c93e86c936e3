//! What the library knows of nodes and of memory: that they wait, and how they are computed.

use std::rc::Rc;

use crate::error::Result;

/// Something that is computed when it is needed.
pub(crate) trait Waiting {
    /// Whether it is still not computed.
    fn waits(&self) -> bool;
    /// Whether nothing computed it along the way, so that somebody may want it.
    fn is_wanted(&self) -> bool;
    /// Computes it.
    fn compute(self: Rc<Self>) -> Result<()>;
}

/// Memory that is about to be written.
pub(crate) trait Written {
    /// Computes what reads the memory and waits, so that it has the values from before.
    fn compute_dependents(&self) -> Result<()>;
    /// Lets what saved the memory for a gradient tell that it was written.
    fn note_write(&self);
}
