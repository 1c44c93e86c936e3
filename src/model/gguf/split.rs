//! Models in several GGUF files: a file's number, the number of files, and the names of the others.
//!
//! Source: `llama-gguf-split` of llama.cpp, which writes the keys `split.*` and names the files `NAME-00001-of-00003.gguf`. The
//! first file holds the metadata of the model.

use super::Metadata;
use crate::error::Result;

/// More files than any model has; the names have room for 99999.
const MAX_FILES: u64 = 10_000;

/// Which file of a split model this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// From 0 on.
    pub number: u64,
    /// At least 2.
    pub count: u64,
    /// The number of tensors in all files together, if the metadata has it.
    pub tensors: Option<u64>,
}

impl Split {
    pub(super) fn of(metadata: &Metadata) -> Result<Option<Self>> {
        let count = metadata.optional_u64("split.count")?.unwrap_or(1);
        if count < 2 {
            return Ok(None);
        }
        let number = metadata.optional_u64("split.no")?.unwrap_or(0);
        if count > MAX_FILES || number >= count {
            bail!(
                InvalidFile,
                "the file says that it is number {number} of {count} (split.no, split.count), wanted a number below the count and \
                 at most {MAX_FILES} files"
            );
        }
        Ok(Some(Self { number, count, tensors: metadata.optional_u64("split.tensors.count")? }))
    }
}

/// The parts of a split file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitName<'n> {
    /// The part before the numbers.
    pub stem: &'n str,
    /// From 0 on.
    pub number: u64,
    pub count: u64,
}

impl<'n> SplitName<'n> {
    pub fn parse(name: &'n str) -> Option<Self> {
        let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let parse = |digits: &str| {
            if digits.len() == 5 && digits.bytes().all(|byte| byte.is_ascii_digit()) {
                digits.parse::<u64>().ok()
            } else {
                None
            }
        };
        let (number, count) = (parse(number)?, parse(count)?);
        (1..=count).contains(&number).then(|| Self { stem, number: number - 1, count })
    }

    /// The name of another file of the model.
    pub fn of(&self, number: u64) -> String {
        format!("{}-{:05}-of-{:05}.gguf", self.stem, number + 1, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart_and_put_together() {
        let name = SplitName::parse("q4/model-v2-00002-of-00010.gguf").unwrap();
        assert_eq!(name, SplitName { stem: "q4/model-v2", number: 1, count: 10 });
        assert_eq!(name.of(0), "q4/model-v2-00001-of-00010.gguf");
        for other in
            ["model.gguf", "m-1-of-2.gguf", "m-00003-of-00002.gguf", "m-00000-of-00002.gguf", "m-00001-of-00002.bin"]
        {
            assert_eq!(SplitName::parse(other), None, "{other}");
        }
    }
}
