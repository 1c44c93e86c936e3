//! The words of groups of packed quants (`tensor/quant/packed`), made of scales and zero points as folders hold them. They are few beside the
//! quants, which never come here.

use half::{bf16, f16};
use serde_json::Value as Json;

use super::checkpoint::{Groups, Order, Packed, Places, Side, Zeros};
use super::safetensors::Dtype;
use crate::error::Result;
use crate::json;
use crate::tensor::quant::packed::{Kind, codebook, halves};

/// Scales that share a factor where they are quantised (bitsandbytes).
const SCALES_OF_FACTOR: usize = 256;

/// A tensor beside the quants, in memory.
pub(super) struct SideValues {
    pub side: Side,
    pub dtype: Dtype,
    pub bytes: Vec<u8>,
}

/// Everything beside the quants of one matrix.
pub(super) struct Sides<'a> {
    packed: &'a Packed,
    values: &'a [SideValues],
    rows: usize,
    columns: usize,
}

impl<'a> Sides<'a> {
    pub fn new(packed: &'a Packed, values: &'a [SideValues], rows: usize, columns: usize) -> Self {
        Self { packed, values, rows, columns }
    }

    fn get(&self, side: Side) -> Option<&'a SideValues> {
        self.values.iter().find(|value| value.side == side)
    }

    fn wanted(&self, side: Side) -> Result<&'a SideValues> {
        self.get(side).ok_or_else(|| err!(Internal, "the matrix has no {side:?}"))
    }

    /// A word for each group, those of a row side by side.
    pub fn words(&self) -> Result<Vec<u32>> {
        self.check()?;
        let Packed { kind, groups, format, .. } = self.packed;
        let summands = match kind {
            Kind::Affine4F16 | Kind::Affine8F16 | Kind::Affine4Bf16 | Kind::Affine8Bf16 => {
                return self.pairs(groups, format.block_size);
            }
            _ => self.get(Side::Summands),
        };
        if summands.is_some() {
            bail!(Internal, "{kind:?} has no summands");
        }
        let scales = self.scales(groups)?;
        let has_zeros = matches!(kind, Kind::Int4 | Kind::Uint8 | Kind::Ordered4 | Kind::Ordered8);
        let zeros = self.get(Side::Zeros).map(|zeros| &zeros.bytes[..]);
        let mut words = Vec::with_capacity(self.rows * self.columns / format.block_size);
        for row in 0..self.rows {
            for column in (0..self.columns).step_by(format.block_size) {
                let scale = *at(&scales, self.place(groups.scales, row, column), "scales")?;
                let bits = scale.to_bits();
                if !has_zeros {
                    words.push(bits);
                    continue;
                }
                if bits & 255 != 0 {
                    bail!(
                        UnsupportedTensorType,
                        "a scale is {scale:e}, wanted one of f16 or bf16: scales of f32 beside zero points are not supported"
                    );
                }
                words.push(bits | u32::from(self.zero(groups, zeros, row, column)?));
            }
        }
        Ok(words)
    }

    fn place(&self, places: Places, row: usize, column: usize) -> usize {
        match places {
            Places::Table { shared, strides } => row / shared[0] * strides[0] + column / shared[1] * strides[1],
            Places::Flat(weights) => (row * self.columns + column) / weights,
        }
    }

    /// Scale and summand of each group as they are.
    fn pairs(&self, groups: &Groups, group: usize) -> Result<Vec<u32>> {
        let is_bf16 = matches!(self.packed.kind, Kind::Affine4Bf16 | Kind::Affine8Bf16);
        let wanted = if is_bf16 { Dtype::BF16 } else { Dtype::F16 };
        let [scales, summands] = [Side::Scales, Side::Summands].map(|side| {
            let values = self.wanted(side)?;
            if values.dtype != wanted {
                bail!(UnsupportedTensorType, "{side:?} are {}, wanted {}", values.dtype.name(), wanted.name());
            }
            Ok(values.bytes.chunks_exact(2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]])).collect::<Vec<u16>>())
        });
        let (scales, summands) = (scales?, summands?);
        let mut words = Vec::with_capacity(self.rows * self.columns / group);
        for row in 0..self.rows {
            for column in (0..self.columns).step_by(group) {
                let place = self.place(groups.scales, row, column);
                words.push(halves(*at(&scales, place, "scales")?, *at(&summands, place, "biases")?));
            }
        }
        Ok(words)
    }

    /// The scales in the order of the file.
    fn scales(&self, groups: &Groups) -> Result<Vec<f32>> {
        let scales = self.wanted(Side::Scales)?;
        if let Some(codes) = self.get(Side::ScaleCodes) {
            let codes = floats(codes)?;
            let factors = floats(self.wanted(Side::ScaleFactors)?)?;
            let summand = self.state()?.summand()?;
            let scale = |(number, code): (usize, &u8)| {
                let factor = at(&factors, number / SCALES_OF_FACTOR, "factors of scales")?;
                Ok(at(&codes, usize::from(*code), "numbers of scales")? * factor + summand)
            };
            return scales.bytes.iter().enumerate().map(scale).collect();
        }
        let mut values = floats(scales)?;
        if groups.are_maxima {
            values.iter_mut().for_each(|value| *value *= 1.0 / 127.0);
        }
        Ok(values)
    }

    fn zero(&self, groups: &Groups, zeros: Option<&[u8]>, row: usize, column: usize) -> Result<u8> {
        let bits = self.packed.packing.bits();
        let of_word = 32 / bits;
        match groups.zeros {
            Zeros::All(zero) => Ok(zero),
            Zeros::Bytes { plus } => {
                let place = self.place(groups.scales, row, column);
                let zero = *at(zeros.unwrap_or(&[]), place, "zero points")? as i8;
                let shifted = i16::from(zero) + i16::from(plus);
                match u8::try_from(shifted) {
                    Ok(shifted) if u16::from(shifted) < 2 * u16::from(plus) => Ok(shifted),
                    _ => bail!(InvalidFile, "a zero point is {zero}, wanted -{plus} to {}", plus - 1),
                }
            }
            Zeros::Words { order, strides, plus } => {
                let shared = match groups.scales {
                    Places::Table { shared, .. } => shared[1],
                    Places::Flat(_) => bail!(Internal, "zero points of weights that are not in groups"),
                };
                let place = column / shared * strides[0] + row / of_word * strides[1];
                let bytes = zeros.unwrap_or(&[]).get(place * 4..place * 4 + 4);
                let Some(bytes) = bytes else { return Err(too_few("zero points", place)) };
                let number = match order {
                    Order::Plain => row % of_word,
                    Order::Awq => row % 8 / 2 + row % 2 * 4,
                };
                let word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                let zero = (word >> (number * bits)).wrapping_add(plus.into());
                Ok((zero & ((1 << bits) - 1)) as u8)
            }
        }
    }

    /// Of each column its group, if the file says so. Where the format has no such table, they must be in order.
    pub fn column_groups(&self) -> Result<Option<Vec<u16>>> {
        let is_ordered = matches!(self.packed.kind, Kind::Ordered4 | Kind::Ordered8);
        let Some(groups) = self.get(Side::ColumnGroups) else { return Ok(None) };
        let groups: Vec<u32> = groups
            .bytes
            .chunks_exact(4)
            .map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
            .collect();
        let Places::Table { shared: [_, of_group], .. } = self.packed.groups.scales else {
            bail!(Internal, "columns of weights that are not in groups");
        };
        let count = self.columns.div_ceil(of_group);
        let is_wrong = |group: &u32| *group as usize >= count;
        if groups.len() != self.columns || groups.iter().any(is_wrong) {
            bail!(
                InvalidFile,
                "the groups of {} columns (g_idx) are {} numbers up to {}, wanted one below {count} each",
                self.columns,
                groups.len(),
                groups.iter().max().copied().unwrap_or(0)
            );
        }
        if is_ordered {
            return Ok(Some(groups.into_iter().map(|group| group as u16).collect()));
        }
        if groups.iter().enumerate().any(|(column, group)| *group as usize != column / of_group) {
            bail!(
                UnsupportedTensorType,
                "the columns are not in the order of their groups (g_idx), but config.json says no desc_act; wanted desc_act: true"
            );
        }
        Ok(None)
    }

    fn state(&self) -> Result<State> {
        State::of(&self.wanted(Side::State)?.bytes)
    }

    /// What must be as it is wanted.
    fn check(&self) -> Result<()> {
        if let (Some(_), Places::Flat(block)) = (self.get(Side::State), self.packed.groups.scales) {
            self.state()?.check(self.rows, self.columns, block, self.get(Side::ScaleCodes).is_some())?;
        }
        if let Some(order) = self.get(Side::Order)
            && order.bytes.iter().any(|byte| *byte != 0)
        {
            bail!(UnsupportedTensorType, "the weights are in the order {:?}, wanted rows (0)", order.bytes);
        }
        if let Some(book) = self.get(Side::Codebook) {
            let wanted = if self.packed.kind == Kind::Nf4 { codebook::NF4 } else { codebook::FP4 };
            let found = floats(book)?;
            if found != wanted {
                bail!(UnsupportedTensorType, "quants stand for {found:?}, supported is {wanted:?}");
            }
        }
        Ok(())
    }
}

fn at<'v, T>(values: &'v [T], place: usize, what: &str) -> Result<&'v T> {
    values.get(place).ok_or_else(|| too_few(what, place))
}

fn too_few(what: &str, place: usize) -> crate::error::Error {
    err!(InvalidFile, "there are too few {what}: number {place} is missing")
}

/// Numbers of any type that scales have.
fn floats(values: &SideValues) -> Result<Vec<f32>> {
    let two = || values.bytes.chunks_exact(2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
    Ok(match values.dtype {
        Dtype::F32 => bytemuck::pod_collect_to_vec(&values.bytes),
        Dtype::F16 => two().map(|bits| f16::from_bits(bits).to_f32()).collect(),
        Dtype::BF16 => two().map(|bits| bf16::from_bits(bits).to_f32()).collect(),
        // Powers of two: a byte of exponent, of which the lowest is subnormal and the highest no number.
        Dtype::F8_E8M0 => values
            .bytes
            .iter()
            .map(|byte| {
                f32::from_bits(match byte {
                    0 => 1 << 22,
                    255 => f32::NAN.to_bits(),
                    byte => u32::from(*byte) << 23,
                })
            })
            .collect(),
        other => bail!(UnsupportedTensorType, "{:?} are {}, wanted F32, F16 or BF16", values.side, other.name()),
    })
}

/// What a matrix of bitsandbytes says of itself.
struct State(Json);

impl State {
    fn of(bytes: &[u8]) -> Result<Self> {
        match json::from_slice(bytes) {
            Ok(state @ Json::Object(_)) => Ok(Self(state)),
            _ => bail!(InvalidFile, "the state of the quantisation (quant_state) is no object of JSON"),
        }
    }

    /// The number that is added to quantised scales.
    fn summand(&self) -> Result<f32> {
        let summand = self.0.get("nested_offset").and_then(Json::as_f64);
        summand.map(|summand| summand as f32).ok_or_else(|| self.wrong("nested_offset", "a number"))
    }

    /// The columns of a matrix stand in no header, so they follow from the configuration. Here they must be the same.
    fn check(&self, rows: usize, columns: usize, block: usize, is_nested: bool) -> Result<()> {
        if self.0.get("shape") != Some(&serde_json::json!([rows, columns])) {
            return Err(self.wrong("shape", &format!("[{rows}, {columns}]")));
        }
        let nested = if is_nested { SCALES_OF_FACTOR } else { 0 };
        for (key, wanted) in [("blocksize", block), ("nested_blocksize", nested)] {
            let found = self.0.get(key).and_then(Json::as_u64).unwrap_or(0);
            if found != wanted as u64 {
                return Err(self.wrong(key, &wanted.to_string()));
            }
        }
        Ok(())
    }

    fn wrong(&self, key: &str, wanted: &str) -> crate::error::Error {
        let found = self.0.get(key).map_or("nothing".to_owned(), |found| found.to_string().chars().take(80).collect());
        err!(InvalidFile, "the state of the quantisation (quant_state) has {key}: {found}, wanted {wanted}")
    }
}
