//! Sentencepiece's own files (`.spm`, `.model`): a message in protobuf's encoding, of which what encoding a text needs is read.
//!
//! Format: sentencepiece's `sentencepiece_model.proto`. Fields that are missing have the defaults that stand there.

use crate::error::Result;

/// Larger than any published one (Gemma's: 4 MB).
const LARGEST: usize = 64 << 20;

/// What a file says.
#[derive(Debug)]
pub(super) struct SentencePieceModel<'f> {
    pub pieces: Vec<Piece<'f>>,
    pub algorithm: u64,
    /// The normalisation; empty for none.
    pub charsmap: &'f [u8],
    pub add_dummy_prefix: bool,
    pub remove_extra_whitespaces: bool,
    pub escape_whitespaces: bool,
    pub treat_whitespace_as_suffix: bool,
}

/// `TrainerSpec.ModelType.UNIGRAM`.
pub(super) const UNIGRAM: u64 = 1;

#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'f> {
    pub text: &'f str,
    pub score: f32,
    /// As in GGUF, which took its numbers over: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte.
    pub kind: u64,
}

/// A field's value, by how it is encoded.
enum Field<'f> {
    Number(u64),
    Bytes(&'f [u8]),
    Word([u8; 4]),
    /// Eight bytes. No field that is read has this form.
    Double,
}

/// The fields of a message, one after the other.
struct Message<'f>(&'f [u8]);

impl<'f> Message<'f> {
    fn take(&mut self, bytes: usize) -> Result<&'f [u8]> {
        match self.0.split_at_checked(bytes) {
            Some((taken, rest)) => {
                self.0 = rest;
                Ok(taken)
            }
            None => bail!(
                UnsupportedTokenizer,
                "the sentencepiece model ends within a field of {bytes} bytes, of which {} are there",
                self.0.len()
            ),
        }
    }

    fn number(&mut self) -> Result<u64> {
        let mut number = 0u64;
        for at in 0..10 {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7F).checked_shl(7 * at).unwrap_or(0);
            if byte < 0x80 {
                return Ok(number);
            }
        }
        bail!(UnsupportedTokenizer, "the sentencepiece model has a number of more than ten bytes")
    }

    /// The number of the next field, and its value; `None` at the end.
    fn next(&mut self) -> Result<Option<(u64, Field<'f>)>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = self.number()?;
        let value = match key & 7 {
            0 => Field::Number(self.number()?),
            1 => {
                self.take(8)?;
                Field::Double
            }
            2 => {
                let length = self.number()?;
                Field::Bytes(self.take(usize::try_from(length).unwrap_or(usize::MAX))?)
            }
            5 => {
                let word = self.take(4)?;
                Field::Word([word[0], word[1], word[2], word[3]])
            }
            form => bail!(
                UnsupportedTokenizer,
                "the sentencepiece model has a field of the form {form}, wanted 0, 1, 2 or 5; it may be no such file"
            ),
        };
        Ok(Some((key >> 3, value)))
    }
}

impl<'f> SentencePieceModel<'f> {
    pub(super) fn read(bytes: &'f [u8]) -> Result<Self> {
        if bytes.len() > LARGEST {
            bail!(UnsupportedTokenizer, "the sentencepiece model has {} bytes, wanted at most {LARGEST}", bytes.len());
        }
        let mut model = Self {
            pieces: Vec::new(),
            algorithm: UNIGRAM,
            charsmap: &[],
            add_dummy_prefix: true,
            remove_extra_whitespaces: true,
            escape_whitespaces: true,
            treat_whitespace_as_suffix: false,
        };
        let mut message = Message(bytes);
        while let Some((field, value)) = message.next()? {
            match (field, value) {
                (1, Field::Bytes(piece)) => model.pieces.push(Piece::read(piece)?),
                (2, Field::Bytes(spec)) => model.read_training(spec)?,
                (3, Field::Bytes(spec)) => model.read_normalization(spec)?,
                _ => {}
            }
        }
        if model.pieces.is_empty() {
            bail!(UnsupportedTokenizer, "the sentencepiece model has no pieces; it may be no such file");
        }
        Ok(model)
    }

    /// `TrainerSpec`.
    fn read_training(&mut self, spec: &'f [u8]) -> Result<()> {
        let mut message = Message(spec);
        while let Some((field, value)) = message.next()? {
            match (field, value) {
                (3, Field::Number(algorithm)) => self.algorithm = algorithm,
                (24, Field::Number(is_set)) => self.treat_whitespace_as_suffix = is_set != 0,
                _ => {}
            }
        }
        Ok(())
    }

    /// `NormalizerSpec`.
    fn read_normalization(&mut self, spec: &'f [u8]) -> Result<()> {
        let mut message = Message(spec);
        while let Some((field, value)) = message.next()? {
            match (field, value) {
                (2, Field::Bytes(charsmap)) => self.charsmap = charsmap,
                (3, Field::Number(is_set)) => self.add_dummy_prefix = is_set != 0,
                (4, Field::Number(is_set)) => self.remove_extra_whitespaces = is_set != 0,
                (5, Field::Number(is_set)) => self.escape_whitespaces = is_set != 0,
                _ => {}
            }
        }
        Ok(())
    }
}

impl<'f> Piece<'f> {
    fn read(bytes: &'f [u8]) -> Result<Self> {
        let mut piece = Self { text: "", score: 0.0, kind: 1 };
        let mut message = Message(bytes);
        while let Some((field, value)) = message.next()? {
            match (field, value) {
                (1, Field::Bytes(text)) => {
                    piece.text = std::str::from_utf8(text).map_err(|_| {
                        err!(
                            UnsupportedTokenizer,
                            "the sentencepiece model has a piece {text:02x?}, which is not UTF-8"
                        )
                    })?;
                }
                (2, Field::Word(score)) => piece.score = f32::from_le_bytes(score),
                (3, Field::Number(kind)) => piece.kind = kind,
                _ => {}
            }
        }
        Ok(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    /// A field of bytes.
    fn bytes(field: u8, bytes: &[u8]) -> Vec<u8> {
        [&[field << 3 | 2, bytes.len() as u8], bytes].concat()
    }

    fn file() -> Vec<u8> {
        let unknown = [bytes(1, b"<unk>"), vec![3 << 3, 2]].concat();
        let piece = [bytes(1, "▁a".as_bytes()), [&[2 << 3 | 5][..], &(-1.5f32).to_le_bytes()].concat()].concat();
        // The suffix has the number 24, which takes two bytes.
        let training = [vec![3 << 3, 2], vec![0x80 | (24 << 3 & 0x7F), 1, 1], bytes(1, b"text.txt")].concat();
        let normalization = [bytes(1, b"nmt_nfkc"), bytes(2, b"map"), vec![3 << 3, 0, 4 << 3, 0, 5 << 3, 1]].concat();
        [bytes(1, &unknown), bytes(1, &piece), bytes(2, &training), bytes(3, &normalization)].concat()
    }

    #[test]
    fn a_model_is_read_and_what_is_missing_has_its_default() {
        let file = file();
        let model = SentencePieceModel::read(&file).unwrap();
        let pieces: Vec<_> = model.pieces.iter().map(|piece| (piece.text, piece.score, piece.kind)).collect();
        assert_eq!(pieces, [("<unk>", 0.0, 2), ("▁a", -1.5, 1)]);
        assert_eq!((model.algorithm, model.charsmap), (2, &b"map"[..]));
        assert!(!model.add_dummy_prefix && !model.remove_extra_whitespaces && model.escape_whitespaces);
        assert!(model.treat_whitespace_as_suffix);
        let one = bytes(1, &bytes(1, b"a"));
        let model = SentencePieceModel::read(&one).unwrap();
        assert_eq!((model.algorithm, model.charsmap.len(), model.pieces[0].kind), (UNIGRAM, 0, 1));
        assert!(model.add_dummy_prefix && model.remove_extra_whitespaces && model.escape_whitespaces);
        assert!(!model.treat_whitespace_as_suffix);
    }

    #[test]
    fn whatever_is_broken_is_an_error_and_no_panic() {
        let good = file();
        for end in 0..good.len() {
            if let Err(error) = SentencePieceModel::read(&good[..end]) {
                assert_eq!(error.code(), Code::UnsupportedTokenizer, "cut at {end}");
            }
        }
        let refused = |bytes: &[u8]| SentencePieceModel::read(bytes).unwrap_err().message().to_owned();
        assert!(refused(b"").contains("no pieces"));
        assert!(refused(b"{\"a\": 1}").contains("form 3"), "{}", refused(b"{\"a\": 1}"));
        assert!(refused(&[0x0A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01]).contains("ends within"));
        assert!(refused(&[0x80; 11]).contains("ten bytes"));
        assert!(refused(&bytes(1, &bytes(1, &[0xFF]))).contains("UTF-8"));
    }
}
