//! The `precompiled_charsmap` of sentencepiece models: a double array of byte prefixes and their replacements.
//!
//! The crate that applies it does not check its indices, so everything that a text can reach is checked here once. The layout is that of
//! sentencepiece's `normalizer.cc` and of darts-clone's double array.

use tokenizers::normalizers::Precompiled;

use crate::error::Result;

/// One unit of the double array.
#[derive(Clone, Copy)]
struct Unit(u32);

impl Unit {
    fn has_leaf(self) -> bool {
        self.0 >> 8 & 1 == 1
    }

    fn value(self) -> usize {
        (self.0 & 0x7FFF_FFFF) as usize
    }

    fn label(self) -> u32 {
        self.0 & 0x8000_00FF
    }

    fn offset(self) -> usize {
        ((self.0 >> 10) as usize) << ((self.0 & 1 << 9) >> 6)
    }
}

/// The normalizer, after checking everything that its double array can reach.
pub(super) fn checked(charsmap: &[u8]) -> Result<Precompiled> {
    let Some((size, rest)) = charsmap.split_first_chunk::<4>() else {
        bail!(UnsupportedTokenizer, "the precompiled charsmap has {} bytes, wanted at least 4", charsmap.len());
    };
    let size = u32::from_le_bytes(*size) as usize;
    let Some((array, replacements)) = rest.split_at_checked(size / 4 * 4) else {
        bail!(UnsupportedTokenizer, "the precompiled charsmap ends within its trie of {size} bytes");
    };
    let units: Vec<Unit> =
        array.chunks_exact(4).map(|unit| Unit(u32::from_le_bytes([unit[0], unit[1], unit[2], unit[3]]))).collect();
    let Ok(replacements) = std::str::from_utf8(replacements) else {
        bail!(UnsupportedTokenizer, "the replacements of the precompiled charsmap are not UTF-8");
    };
    walk(&units, replacements)?;
    Precompiled::from(charsmap)
        .map_err(|cause| err!(UnsupportedTokenizer, "the precompiled charsmap can't be read: {cause}"))
}

fn walk(units: &[Unit], replacements: &str) -> Result<()> {
    let outside = || err!(UnsupportedTokenizer, "the precompiled charsmap points outside of its {} units", units.len());
    let root = units.first().ok_or_else(outside)?;
    let mut seen = vec![false; units.len()];
    let mut bases = vec![root.offset()];
    while let Some(base) = bases.pop() {
        // Any byte may come next. The unit there is read before its label is compared.
        for byte in 1..=255u32 {
            let at = base ^ byte as usize;
            let unit = *units.get(at).ok_or_else(outside)?;
            if unit.label() != byte || std::mem::replace(&mut seen[at], true) {
                continue;
            }
            let next = at ^ unit.offset();
            if unit.has_leaf() {
                let start = units.get(next).ok_or_else(outside)?.value();
                if !replacements.is_char_boundary(start) {
                    bail!(UnsupportedTokenizer, "the precompiled charsmap has no replacement at byte {start}");
                }
            }
            bases.push(next);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    /// A double array with one key, "a", which "b" replaces.
    fn one_key() -> Vec<u8> {
        let mut units = vec![0u32; 512];
        units[0] = 256 << 10; // children of the root are at 256 ^ byte
        let a = 256 ^ 0x61;
        units[a] = 0x61 | 1 << 8 | ((a as u32 ^ 0x180) << 10); // its leaf is at 0x180
        units[0x180] = 0x8000_0000;
        let mut bytes = (512u32 * 4).to_le_bytes().to_vec();
        bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
        bytes.extend(b"b\0");
        bytes
    }

    #[test]
    fn a_sound_charsmap_is_taken() {
        assert_eq!(checked(&one_key()).unwrap().transform("a"), Some("b"));
    }

    #[test]
    fn whatever_is_broken_in_a_charsmap_is_an_error_and_no_panic() {
        let good = one_key();
        for end in 0..good.len() - 2 {
            let cut = checked(&good[..end]);
            assert!(cut.is_err(), "cut at {end}");
        }
        let root = 4;
        let leaf = 4 + 4 * 0x180;
        let a = 4 + 4 * (256 ^ 0x61);
        for (at, value) in
            [(root, 512u32 << 10), (root, u32::MAX), (leaf, 0x8000_0003), (a, 0x61 | 1 << 8 | 4000 << 10)]
        {
            let mut bad = good.clone();
            bad[at..at + 4].copy_from_slice(&value.to_le_bytes());
            assert_eq!(checked(&bad).unwrap_err().code(), Code::UnsupportedTokenizer, "{value:#x} at {at}");
        }
    }
}
