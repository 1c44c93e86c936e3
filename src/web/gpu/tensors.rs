//! The contents of tensors: from JavaScript's bytes, and from other tensors.

use js_sys::Uint8Array;

use super::super::bytes::JsBytes;
use crate::array::{Array, DType, Library};
use crate::error::Result;
use crate::gpu::{Device, HostBytes};

/// A dtype as JavaScript names it.
pub fn dtype(name: &str) -> Result<DType> {
    match DType::by_name(name) {
        Some(dtype) => Ok(dtype),
        None => {
            let names = DType::ALL.map(DType::name).join(", ");
            bail!(DtypeMismatch, "a tensor is of dtype {names}, not {name}")
        }
    }
}

/// An error if a binding can't hold such a tensor.
pub fn check_size(dims: &[usize], dtype: DType, device: &Device) -> Result<()> {
    // Before anything is multiplied in the 32 bits of a wasm address.
    let bytes = dims.iter().try_fold(dtype.size() as u64, |bytes, dim| bytes.checked_mul(*dim as u64));
    let limit = device.capabilities().max_storage_binding_size.min(u64::from(u32::MAX));
    match bytes {
        Some(bytes) if bytes <= limit => Ok(()),
        _ => bail!(AdapterLimits, "a tensor {dims:?} does not fit the {limit} bytes that a binding may have here"),
    }
}

/// A tensor of these bytes.
pub fn upload(library: &Library, bytes: Uint8Array, dims: &[usize], dtype: DType) -> Result<Array> {
    check_size(dims, dtype, library.context().device())?;
    let array = library.empty(dims, dtype)?;
    if bytes.length() as usize != array.elements() * dtype.size() {
        bail!(ShapeMismatch, "{} bytes are not the elements of {}", bytes.length(), array.shape());
    }
    if bytes.length() > 0 {
        write_words(library, &array, 0, bytes)?;
    }
    Ok(array)
}

/// Overwrites elements from `first` on.
pub fn write(library: &Library, array: &Array, first: usize, bytes: Uint8Array) -> Result<()> {
    let count = bytes.length() as usize / array.dtype().size();
    let elements = array.elements();
    if !(bytes.length() as usize).is_multiple_of(array.dtype().size())
        || first.checked_add(count).is_none_or(|end| end > elements)
    {
        let length = bytes.length();
        bail!(ShapeMismatch, "{length} bytes from element {first} don't fit a tensor of {elements} elements");
    }
    if array.dtype().size() == 4 && array.is_writable()? {
        return write_words(library, array, first, bytes);
    }
    let data = upload(library, bytes, &[count], array.dtype())?;
    array.assign_from("write", first, &data)
}

/// Small writes go through the wasm heap, to be staged; the bytes of larger ones never do. A last half word is filled up.
fn write_words(library: &Library, array: &Array, first: usize, bytes: Uint8Array) -> Result<()> {
    let length = bytes.length() as usize;
    let (context, tensor) = (library.context(), array.writable_tensor("write")?);
    if length <= 4096 || !length.is_multiple_of(4) {
        let mut words = bytes.to_vec();
        words.resize(length.next_multiple_of(4), 0);
        let slice = tensor.slice();
        return context.device().write(&slice.buffer, slice.offset + 4 * first as u64, &words);
    }
    let slice = tensor.slice();
    JsBytes::new(bytes).write_to_buffer(0..length, context.device(), &slice.buffer, slice.offset + 4 * first as u64)
}
