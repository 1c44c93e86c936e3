//! JSON by way of JSON values. The number of values in a text is limited: the shortest one is two bytes long and takes fifty times that in memory.
//!
//! serde makes a reader for each type and each kind of input. Requests are read from values; what is read from bytes like this needs no
//! readers of its own, which are kilobytes of wasm for each type.

use serde::de::{DeserializeOwned, Error};

/// More than any document has that is read by way of values.
const MOST_VALUES: usize = 1 << 18;

/// Reads a small document. Errors name no place in it.
pub(crate) fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<T> {
    check_values(bytes, MOST_VALUES)?;
    serde_json::from_value(serde_json::from_slice(bytes)?)
}

/// Refuses a text of too many values before any is made.
pub(crate) fn check_values(bytes: &[u8], most: usize) -> serde_json::Result<()> {
    let (mut values, mut in_string, mut escaped) = (1, false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b',' | b'[' | b'{' if !in_string => values += 1,
            _ => {}
        }
    }
    if values > most {
        return Err(serde_json::Error::custom(format!("there are {values} values in it, wanted at most {most}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_but_not_in_texts() {
        let text = br#"{"a,[": [1, 2, {"b\"{,": "\\"}], "c": null}"#;
        assert!(check_values(text, 7).is_ok());
        assert!(check_values(text, 6).is_err_and(|error| error.to_string().contains("7 values")));
        let many = format!("[{}0]", "0,".repeat(MOST_VALUES));
        assert!(from_slice::<Vec<u8>>(many.as_bytes()).is_err());
    }
}
