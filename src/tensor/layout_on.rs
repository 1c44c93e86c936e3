//! How a weight lies on a device: on a GPU in SoA, on the CPU as in a file, or packed for products with activations of 8 bits.

use super::cpu::linear::packed_bytes;
use super::quant::{Format, SoaLayout, Table};
use crate::error::Result;
use crate::gpu::Capabilities;

impl Format {
    /// The layout on a device. On the CPU it is that of a file; formats of other libraries, which have no such file, are blocks with their words.
    pub fn layout_on(&self, rows: usize, columns: usize, capabilities: Option<&Capabilities>) -> Result<SoaLayout> {
        if !capabilities.is_some_and(|capabilities| capabilities.cpu) {
            return Ok(self.soa_layout(rows, columns));
        }
        let packs = capabilities.is_some_and(|capabilities| capabilities.packs_weights);
        let bytes = (self.bytes_on_cpu(rows, columns, packs)? as u64).next_multiple_of(16);
        Ok(SoaLayout { arrays: vec![(0, bytes)], bytes })
    }

    /// Bytes of a matrix [rows, columns] on the CPU: its rows, and after them of each column the group, if the format asks for it. With `packs`,
    /// it is packed if it can be.
    pub(super) fn bytes_on_cpu(&self, rows: usize, columns: usize, packs: bool) -> Result<usize> {
        if packs && let Some(bytes) = packed_bytes(self, rows, columns) {
            return Ok(bytes);
        }
        let groups = if matches!(self.table, Table::Columns) { 2 * columns } else { 0 };
        Ok(rows * self.row_bytes(columns)? + groups)
    }
}
