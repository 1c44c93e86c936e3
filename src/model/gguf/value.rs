//! The metadata of a GGUF file: values of the format's thirteen types, and getters that convert or return an error. Knows no keys; its
//! users know them.

use std::collections::BTreeMap;

use crate::error::{Error, Result};

/// One value. `Value::Array` holds elements of one type.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// uint8.
    U8(u8),
    /// int8.
    I8(i8),
    /// uint16.
    U16(u16),
    /// int16.
    I16(i16),
    /// uint32.
    U32(u32),
    /// int32.
    I32(i32),
    /// float32.
    F32(f32),
    /// bool.
    Bool(bool),
    /// A string, in UTF-8.
    String(String),
    /// An array.
    Array(Array),
    /// uint64.
    U64(u64),
    /// int64.
    I64(i64),
    /// float64.
    F64(f64),
}

impl Value {
    /// The type's name in the specification.
    pub fn type_name(&self) -> String {
        match self {
            Self::U8(_) => "uint8".into(),
            Self::I8(_) => "int8".into(),
            Self::U16(_) => "uint16".into(),
            Self::I16(_) => "int16".into(),
            Self::U32(_) => "uint32".into(),
            Self::I32(_) => "int32".into(),
            Self::F32(_) => "float32".into(),
            Self::Bool(_) => "bool".into(),
            Self::String(_) => "string".into(),
            Self::Array(array) => format!("array of {}", array.element_type_name()),
            Self::U64(_) => "uint64".into(),
            Self::I64(_) => "int64".into(),
            Self::F64(_) => "float64".into(),
        }
    }

    /// An integer of any type as one type that holds them all.
    fn integer(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(v) => v.into(),
            Self::I8(v) => v.into(),
            Self::U16(v) => v.into(),
            Self::I16(v) => v.into(),
            Self::U32(v) => v.into(),
            Self::I32(v) => v.into(),
            Self::U64(v) => v.into(),
            Self::I64(v) => v.into(),
            _ => return None,
        })
    }
}

/// The elements of an array, which are all of one type.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    /// uint8.
    U8(Vec<u8>),
    /// int8.
    I8(Vec<i8>),
    /// uint16.
    U16(Vec<u16>),
    /// int16.
    I16(Vec<i16>),
    /// uint32.
    U32(Vec<u32>),
    /// int32.
    I32(Vec<i32>),
    /// float32.
    F32(Vec<f32>),
    /// bool.
    Bool(Vec<bool>),
    /// Strings, of any bytes.
    String(Strings),
    /// Arrays, each with its own type.
    Array(Vec<Array>),
    /// uint64.
    U64(Vec<u64>),
    /// int64.
    I64(Vec<i64>),
    /// float64.
    F64(Vec<f64>),
}

impl Array {
    /// The number of elements; for nested arrays only that of the outermost.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(v) => v.len(),
            Self::I8(v) => v.len(),
            Self::U16(v) => v.len(),
            Self::I16(v) => v.len(),
            Self::U32(v) => v.len(),
            Self::I32(v) => v.len(),
            Self::F32(v) => v.len(),
            Self::Bool(v) => v.len(),
            Self::String(v) => v.len(),
            Self::Array(v) => v.len(),
            Self::U64(v) => v.len(),
            Self::I64(v) => v.len(),
            Self::F64(v) => v.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn element_type_name(&self) -> &'static str {
        match self {
            Self::U8(_) => "uint8",
            Self::I8(_) => "int8",
            Self::U16(_) => "uint16",
            Self::I16(_) => "int16",
            Self::U32(_) => "uint32",
            Self::I32(_) => "int32",
            Self::F32(_) => "float32",
            Self::Bool(_) => "bool",
            Self::String(_) => "string",
            Self::Array(_) => "array",
            Self::U64(_) => "uint64",
            Self::I64(_) => "int64",
            Self::F64(_) => "float64",
        }
    }

    /// Elements of any integer type, widened.
    fn integers(&self) -> Option<Box<dyn Iterator<Item = i128> + '_>> {
        Some(match self {
            Self::U8(v) => Box::new(v.iter().map(|&v| v.into())),
            Self::I8(v) => Box::new(v.iter().map(|&v| v.into())),
            Self::U16(v) => Box::new(v.iter().map(|&v| v.into())),
            Self::I16(v) => Box::new(v.iter().map(|&v| v.into())),
            Self::U32(v) => Box::new(v.iter().map(|&v| v.into())),
            Self::I32(v) => Box::new(v.iter().map(|&v| v.into())),
            Self::U64(v) => Box::new(v.iter().map(|&v| v.into())),
            Self::I64(v) => Box::new(v.iter().map(|&v| v.into())),
            _ => return None,
        })
    }
}

/// The strings of an array, packed: a vocabulary has hundreds of thousands of them and one allocation each is costly.
///
/// The specification requires UTF-8, but vocabularies of real files hold tokens that are single bytes of a character.
/// So elements of arrays are kept as bytes, and only [`Metadata::strings`] requires text. Keys, tensor names and single string
/// values that are not UTF-8 are refused while reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strings {
    bytes: Vec<u8>,
    /// Where each string ends in `bytes`. A header is limited to far less than 4 GiB.
    ends: Vec<u32>,
}

impl Strings {
    pub(super) fn with_capacity(count: usize) -> Self {
        Self { bytes: Vec::new(), ends: Vec::with_capacity(count) }
    }

    pub(super) fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len() as u32);
    }

    /// These texts.
    pub fn of(texts: impl IntoIterator<Item = String>) -> Self {
        let mut strings = Self::default();
        texts.into_iter().for_each(|text| strings.push(text.as_bytes()));
        strings
    }

    /// The number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes of a string.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)? as usize;
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        Some(&self.bytes[start..end])
    }

    /// The bytes of all strings, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

/// All metadata of a file, by key.
///
/// Each getter has two forms: `u32(key)` requires the key, `optional_u32(key)` returns `None` without it. Both return
/// `Code::InvalidMetadata` if the value's type does not convert without loss.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    entries: BTreeMap<String, Value>,
}

macro_rules! getters {
    ($($(#[$doc:meta])* $required:ident $optional:ident -> $type:ty : $wanted:literal, $convert:expr;)*) => {
        $(
            $(#[$doc])*
            pub fn $required(&self, key: &str) -> Result<$type> {
                self.$optional(key)?.ok_or_else(|| missing(key, $wanted))
            }

            $(#[$doc])*
            pub fn $optional(&self, key: &str) -> Result<Option<$type>> {
                let Some(value) = self.entries.get(key) else { return Ok(None) };
                let convert: fn(&Value) -> Option<$type> = $convert;
                convert(value).map(Some).ok_or_else(|| mismatch(key, value, $wanted))
            }
        )*
    };
}

impl Metadata {
    /// Adds an entry. False if the key exists; then the first value stays.
    pub(in crate::model) fn insert(&mut self, key: String, value: Value) -> bool {
        use std::collections::btree_map::Entry;
        match self.entries.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(value);
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.get(key)
    }

    /// All entries, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    getters! {
        /// An integer of any width that fits.
        u32 optional_u32 -> u32: "an unsigned integer of 32 bits", |v| v.integer()?.try_into().ok();
        /// An integer of any width that fits.
        u64 optional_u64 -> u64: "an unsigned integer", |v| v.integer()?.try_into().ok();
        /// An integer of any width that fits.
        i64 optional_i64 -> i64: "an integer", |v| v.integer()?.try_into().ok();
        /// A float32, or a float64 rounded.
        f32 optional_f32 -> f32: "a float32", |v| match *v {
            Value::F32(v) => Some(v),
            Value::F64(v) => Some(v as f32),
            _ => None,
        };
        /// A bool; numbers don't convert.
        bool optional_bool -> bool: "a bool", |v| match *v {
            Value::Bool(v) => Some(v),
            _ => None,
        };
        /// Integers of any width, each of which fits.
        i32_array optional_i32_array -> Vec<i32>: "an array of int32", |v| match v {
            Value::Array(array) => array.integers()?.map(|v| v.try_into().ok()).collect(),
            _ => None,
        };
        /// Integers of any width, each of which fits.
        u32_array optional_u32_array -> Vec<u32>: "an array of uint32", |v| match v {
            Value::Array(array) => array.integers()?.map(|v| v.try_into().ok()).collect(),
            _ => None,
        };
    }

    /// A string. An error without the key.
    pub fn str(&self, key: &str) -> Result<&str> {
        self.optional_str(key)?.ok_or_else(|| missing(key, "a string"))
    }

    /// A string.
    pub fn optional_str(&self, key: &str) -> Result<Option<&str>> {
        match self.entries.get(key) {
            None => Ok(None),
            Some(Value::String(v)) => Ok(Some(v)),
            Some(value) => Err(mismatch(key, value, "a string")),
        }
    }

    /// An array of float32; other numbers don't convert. An error without the key.
    pub fn f32_array(&self, key: &str) -> Result<&[f32]> {
        self.optional_f32_array(key)?.ok_or_else(|| missing(key, "an array of float32"))
    }

    /// An array of float32; other numbers don't convert.
    pub fn optional_f32_array(&self, key: &str) -> Result<Option<&[f32]>> {
        match self.entries.get(key) {
            None => Ok(None),
            Some(Value::Array(Array::F32(v))) => Ok(Some(v)),
            Some(value) => Err(mismatch(key, value, "an array of float32")),
        }
    }

    /// The strings of an array as the file has them, which may not be UTF-8.
    pub fn byte_strings(&self, key: &str) -> Result<&Strings> {
        self.optional_byte_strings(key)?.ok_or_else(|| missing(key, "an array of strings"))
    }

    /// The strings of an array as the file has them, which may not be UTF-8.
    pub fn optional_byte_strings(&self, key: &str) -> Result<Option<&Strings>> {
        match self.entries.get(key) {
            None => Ok(None),
            Some(Value::Array(Array::String(v))) => Ok(Some(v)),
            Some(value) => Err(mismatch(key, value, "an array of strings")),
        }
    }

    /// The strings of an array as text; an element that is not UTF-8 is an error that names its index.
    pub fn strings(&self, key: &str) -> Result<Vec<&str>> {
        self.optional_strings(key)?.ok_or_else(|| missing(key, "an array of strings"))
    }

    /// The strings of an array as text; an element that is not UTF-8 is an error that names its index.
    pub fn optional_strings(&self, key: &str) -> Result<Option<Vec<&str>>> {
        let Some(strings) = self.optional_byte_strings(key)? else { return Ok(None) };
        let text = |(index, bytes)| {
            std::str::from_utf8(bytes).map_err(|_| {
                err!(InvalidMetadata, "{key}: element {index} is {bytes:02x?}, which is not UTF-8, wanted text")
            })
        };
        strings.iter().enumerate().map(text).collect::<Result<_>>().map(Some)
    }

    /// An array of any type. An error without the key.
    pub fn array(&self, key: &str) -> Result<&Array> {
        self.optional_array(key)?.ok_or_else(|| missing(key, "an array"))
    }

    /// An array of any type.
    pub fn optional_array(&self, key: &str) -> Result<Option<&Array>> {
        match self.entries.get(key) {
            None => Ok(None),
            Some(Value::Array(v)) => Ok(Some(v)),
            Some(value) => Err(mismatch(key, value, "an array")),
        }
    }

    /// A number of each layer, which some writers give once for all layers.
    pub fn optional_u32_of_each_layer(&self, key: &str, n_layers: u32) -> Result<Option<Vec<u32>>> {
        if !matches!(self.entries.get(key), Some(Value::Array(_))) {
            return Ok(self.optional_u32(key)?.map(|number| vec![number; n_layers as usize]));
        }
        let values = self.u32_array(key)?;
        if values.len() != n_layers as usize {
            bail!(InvalidMetadata, "{key} has {} elements, wanted one for each of the {n_layers} layers", values.len());
        }
        Ok(Some(values))
    }

    /// The same where layers with different numbers are not supported.
    pub fn optional_u32_of_all_layers(&self, key: &str, n_layers: u32) -> Result<Option<u32>> {
        let Some(values) = self.optional_u32_of_each_layer(key, n_layers)? else { return Ok(None) };
        let first = values.first().copied();
        match values.iter().position(|&v| Some(v) != first) {
            None => Ok(first),
            Some(layer) => bail!(
                UnsupportedArchitecture,
                "{key} is {} for layer {layer} and {} for layer 0; layers of different shapes are not supported",
                values[layer],
                values[0]
            ),
        }
    }
}

fn missing(key: &str, wanted: &str) -> Error {
    err!(InvalidMetadata, "the metadata has no key {key:?}, wanted {wanted}; the file may come from an old converter")
}

fn mismatch(key: &str, value: &Value, wanted: &str) -> Error {
    let found = match value {
        Value::Array(array) => format!("{} with {} elements", value.type_name(), array.len()),
        Value::String(text) => format!("string of {} bytes", text.len()),
        other => match other.integer() {
            Some(number) => format!("{} {number}", other.type_name()),
            None => other.type_name(),
        },
    };
    err!(InvalidMetadata, "the metadata key {key:?} is {found}, wanted {wanted}")
}
