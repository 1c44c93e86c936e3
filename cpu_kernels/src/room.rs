//! Memory for what is on its way. Where there is none, an allocation of the standard library ends the program.

use crate::format::Mismatch;

/// Room for `count` elements.
pub fn reserved<T>(count: usize) -> Result<Vec<T>, Mismatch> {
    let mut all = Vec::new();
    let bytes = count.saturating_mul(size_of::<T>());
    all.try_reserve_exact(count).map_err(|_| Mismatch::no_room(bytes))?;
    Ok(all)
}

/// `count` elements, all the same.
pub fn filled<T: Clone>(value: T, count: usize) -> Result<Vec<T>, Mismatch> {
    let mut all = Vec::new();
    resized(&mut all, count, value)?;
    Ok(all)
}

/// `count` zeros, which memory that is new has already.
pub fn zeros(count: usize) -> Result<Vec<f32>, Mismatch> {
    bytemuck::allocation::try_zeroed_vec(count).map_err(|()| Mismatch::no_room(count.saturating_mul(4)))
}

/// Makes it `count` elements. Those that come are all the same.
pub fn resized<T: Clone>(all: &mut Vec<T>, count: usize, value: T) -> Result<(), Mismatch> {
    let more = count.saturating_sub(all.len());
    all.try_reserve_exact(more).map_err(|_| Mismatch::no_room(more.saturating_mul(size_of::<T>())))?;
    all.resize(count, value);
    Ok(())
}

/// Puts an element at the end.
pub(crate) fn pushed<T>(all: &mut Vec<T>, value: T) -> Result<(), Mismatch> {
    all.try_reserve(1).map_err(|_| Mismatch::no_room(size_of_val(&all[..]) + size_of::<T>()))?;
    all.push(value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{filled, reserved, zeros};

    #[test]
    fn no_room_is_told_from_what_does_not_fit() {
        assert_eq!(filled(0.5f32, 3), Ok(vec![0.5; 3]));
        assert_eq!(zeros(3), Ok(vec![0.0; 3]));
        for error in [
            filled(0f32, usize::MAX / 4).unwrap_err(),
            zeros(usize::MAX / 4).unwrap_err(),
            reserved::<u64>(usize::MAX).unwrap_err(),
        ] {
            assert!(error.is_no_room(), "{error}");
        }
        let other = crate::format::expect("rows", 3, 4).unwrap_err();
        assert!(!other.is_no_room());
    }
}
