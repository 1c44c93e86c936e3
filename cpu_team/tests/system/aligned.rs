//! Memory where matrices may begin.

/// Bytes at a multiple of 16.
pub struct Aligned(Vec<u128>, usize);

impl Aligned {
    pub fn of(bytes: &[u8]) -> Self {
        let mut words = vec![0u128; bytes.len().div_ceil(16).max(1)];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks(16)) {
            let mut whole = [0; 16];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u128::from_le_bytes(whole);
        }
        Self(words, bytes.len())
    }

    pub fn at(&self) -> usize {
        self.0.as_ptr().expose_provenance()
    }

    /// How many bytes there are.
    pub fn length(&self) -> usize {
        self.1
    }
}
