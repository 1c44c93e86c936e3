//! Rows of tensors, one for each sequence.

/// The elements of a row of a tensor with `rows` rows.
pub(super) fn of_row<T>(elements: &[T], rows: usize, row: usize) -> &[T] {
    let length = elements.len() / rows.max(1);
    &elements[row * length..(row + 1) * length]
}

/// The same of a tensor that is changed.
pub(super) fn of_row_mut<T>(elements: &mut [T], rows: usize, row: usize) -> &mut [T] {
    let length = elements.len() / rows.max(1);
    &mut elements[row * length..(row + 1) * length]
}
