//! How ops run where the device is the CPU: an op's function gets the bytes of its tensors in place of a kernel.
//!
//! Weights lie in a buffer as they do in a file, row by row, and everything else as on a GPU. `groups_on_cpu.rs` says how those of other
//! libraries' files do. Where the device packs weights (`Capabilities::packs_weights`), those that can be are packed as they come.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::cpu::linear::{pack_rows, packed_bytes, row};
use super::cpu::team::TeamWeight;
use super::cpu::{filled, fits, problem};
use super::op::Reference;
use super::quant::{Format, Table, quantize_reference};
use super::{Context, DType, Desc, HostTensor, Op, Shape, Tensor};
use crate::error::Result;
use crate::gpu::{Binding, BufferSlice, CpuKernel, Lent, Problem, Team, TeamAddress, TeamBytes};

/// An op that can be kept until it runs.
pub type CpuOp = Arc<dyn Reference + Send + Sync>;

/// A tensor's bytes while its op runs.
pub struct CpuTensor<'a> {
    /// Shape and dtype.
    pub desc: Desc,
    bytes: Lent<'a>,
    /// It is a weight that is packed for products with activations of 8 bits.
    is_packed: bool,
}

/// What an op runs on.
pub struct CpuTensors<'a> {
    /// The inputs, those that it changes included.
    pub inputs: Vec<CpuTensor<'a>>,
    /// The outputs, whose bytes are unspecified.
    pub outputs: Vec<CpuTensor<'a>>,
    /// The device's threads, if there are several.
    pub team: Option<&'a Arc<dyn Team>>,
}

impl<'a> CpuTensors<'a> {
    /// One of the inputs.
    pub fn input(&self, index: usize) -> Result<&CpuTensor<'a>> {
        self.inputs.get(index).ok_or_else(|| err!(Internal, "an op without input {index}"))
    }

    /// One of the inputs that the op changes.
    pub fn changed(&mut self, index: usize) -> Result<&mut CpuTensor<'a>> {
        self.inputs.get_mut(index).ok_or_else(|| err!(Internal, "an op without input {index}"))
    }

    /// One of the outputs.
    pub fn output(&mut self, index: usize) -> Result<&mut CpuTensor<'a>> {
        self.outputs.get_mut(index).ok_or_else(|| err!(Internal, "an op without output {index}"))
    }
}

/// The bytes of a tensor in a buffer of the CPU's device.
fn byte_length(desc: &Desc, packs: bool) -> Result<usize> {
    Ok(match desc.dtype {
        DType::Weight(format) => {
            let (rows, columns) = desc.shape.matrix()?;
            format.bytes_on_cpu(rows, columns, packs)?
        }
        dtype => dtype.bytes(desc.shape.elements() as u64) as usize,
    })
}

impl<'a> CpuTensor<'a> {
    fn new(desc: Desc, bytes: Lent<'a>, packs: bool) -> Result<Self> {
        let length = byte_length(&desc, packs)?;
        let is_packed = match desc.dtype {
            DType::Weight(format) if packs => {
                let (rows, columns) = desc.shape.matrix()?;
                packed_bytes(format, rows, columns).is_some()
            }
            _ => false,
        };
        let bytes = match bytes {
            Lent::Read(Cow::Borrowed(bytes), twin) => {
                bytes.get(..length).map(|bytes| Lent::Read(Cow::Borrowed(bytes), twin))
            }
            Lent::Read(Cow::Owned(mut bytes), twin) => (length <= bytes.len()).then(|| {
                bytes.truncate(length);
                Lent::Read(Cow::Owned(bytes), twin)
            }),
            Lent::Write(written) => written.first(length).map(Lent::Write),
            Lent::Team(bytes) => (length <= bytes.size()).then_some(Lent::Team(bytes)),
        };
        match bytes {
            Some(bytes) => Ok(Self { desc, bytes, is_packed }),
            None => bail!(Internal, "{desc:?} has more than the bytes that are bound"),
        }
    }

    /// Whether it is a weight that is packed for products with activations of 8 bits.
    pub(super) fn is_packed(&self) -> bool {
        self.is_packed
    }

    /// The weight that it is in the memory of several threads, if it is there.
    pub(super) fn of_team(&self) -> Result<Option<TeamWeight<'_>>> {
        match &self.bytes {
            Lent::Team(bytes) => TeamWeight::new(bytes, self.desc, self.is_packed).map(Some),
            Lent::Read(..) | Lent::Write(_) => Ok(None),
        }
    }

    /// Its bytes. An error if they are in the memory of several threads.
    pub fn bytes(&self) -> Result<&[u8]> {
        match &self.bytes {
            Lent::Read(bytes, _) => Ok(bytes),
            Lent::Write(written) => Ok(written.bytes()),
            Lent::Team(_) => bail!(Internal, "{:?} is in the memory of threads", self.desc),
        }
    }

    /// Its bytes, of an output or an input that the op changes.
    pub fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        match &mut self.bytes {
            Lent::Write(written) => Ok(written.bytes_mut()),
            Lent::Read(..) | Lent::Team(_) => bail!(Internal, "{:?} is only read", self.desc),
        }
    }

    /// Some of its bytes, of an output or an input that the op changes. Who writes little says so, since the rest is still there where threads read.
    pub fn part_mut(&mut self, range: Range<usize>) -> Result<&mut [u8]> {
        let part = match &mut self.bytes {
            Lent::Write(written) => written.part_mut(range),
            Lent::Read(..) | Lent::Team(_) => bail!(Internal, "{:?} is only read", self.desc),
        };
        part.ok_or_else(|| err!(Internal, "{:?} ends before what is written", self.desc))
    }

    /// Where some of its bytes, which are read, are in a memory of threads: there they are as here, and only what changed since the last time
    /// is sent. `None` if there is no room.
    pub(super) fn in_team(
        &self,
        team: &Arc<dyn Team>,
        range: Range<usize>,
    ) -> std::result::Result<Option<TeamAddress>, Problem> {
        match &self.bytes {
            Lent::Read(bytes, Some(twin)) => twin.address(team, bytes, range),
            Lent::Read(_, None) | Lent::Write(_) | Lent::Team(_) => Ok(None),
        }
    }

    /// Its elements.
    pub fn f32s(&self) -> Result<&[f32]> {
        self.elements(DType::F32)
    }

    /// Its elements, of an output or an input that the op changes.
    pub fn f32s_mut(&mut self) -> Result<&mut [f32]> {
        self.elements_mut(DType::F32)
    }

    /// Its elements.
    pub fn u32s(&self) -> Result<&[u32]> {
        self.elements(DType::U32)
    }

    /// Its elements, of an output or an input that the op changes.
    pub fn u32s_mut(&mut self) -> Result<&mut [u32]> {
        self.elements_mut(DType::U32)
    }

    /// Overwrites all elements.
    pub fn write_f32s(&mut self, values: &[f32]) -> Result<()> {
        let desc = self.desc;
        let elements = self.f32s_mut()?;
        if elements.len() != values.len() {
            bail!(Internal, "{} elements for {desc:?}", values.len());
        }
        elements.copy_from_slice(values);
        Ok(())
    }

    fn elements<T: bytemuck::AnyBitPattern>(&self, dtype: DType) -> Result<&[T]> {
        if self.desc.dtype != dtype {
            bail!(DtypeMismatch, "{dtype:?} is needed, not {:?}", self.desc);
        }
        bytemuck::try_cast_slice(self.bytes()?).map_err(|error| err!(Internal, "{:?}: {error}", self.desc))
    }

    fn elements_mut<T: bytemuck::Pod>(&mut self, dtype: DType) -> Result<&mut [T]> {
        let desc = self.desc;
        if desc.dtype != dtype {
            bail!(DtypeMismatch, "{dtype:?} is needed, not {desc:?}");
        }
        bytemuck::try_cast_slice_mut(self.bytes_mut()?).map_err(|error| err!(Internal, "{desc:?}: {error}"))
    }

    fn to_host(&self) -> Result<HostTensor> {
        let Desc { shape, dtype } = self.desc;
        if let DType::Weight(format) = dtype
            && (self.is_packed || matches!(format.table, Table::Columns))
        {
            // A tensor of the host is as in a file.
            let (_, columns) = shape.matrix()?;
            let mut floats = filled(0.0, shape.elements())?;
            for (at, out) in floats.chunks_exact_mut(columns).enumerate() {
                row(self, at, out)?;
            }
            let f32 = Format::by_gguf_type(0).ok_or_else(|| err!(Internal, "there is no format of floats"))?;
            let bytes = copied(bytemuck::cast_slice(&floats))?;
            return Ok(HostTensor { shape, dtype: DType::Weight(f32), bytes });
        }
        let bytes = match self.of_team()? {
            Some(weight) => weight.file_bytes(byte_length(&self.desc, false)?)?,
            None => copied(self.bytes()?)?,
        };
        Ok(HostTensor { shape, dtype, bytes })
    }

    fn set(&mut self, host: &HostTensor) -> Result<()> {
        let desc = self.desc;
        let bytes = self.bytes_mut()?;
        if bytes.len() != host.bytes.len() {
            bail!(Internal, "{} bytes for {desc:?}", host.bytes.len());
        }
        bytes.copy_from_slice(&host.bytes);
        Ok(())
    }
}

fn copied(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut copy = fits(rillm_cpu_kernels::reserved(bytes.len()))?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// Runs an op by its reference, on copies.
pub fn by_reference(op: &(impl Reference + ?Sized), mut tensors: CpuTensors<'_>) -> Result<()> {
    let mut inputs = tensors.inputs.iter().map(CpuTensor::to_host).collect::<Result<Vec<HostTensor>>>()?;
    // A reference allocates without asking, about as much as it is given and gives, in f64: that is tried before.
    let written: usize = tensors.outputs.iter().map(|output| output.desc.shape.elements()).sum();
    let read: usize = inputs.iter().map(|input| input.shape.elements()).sum();
    drop(fits(rillm_cpu_kernels::reserved::<f64>(read + written))?);
    let outputs = op.reference(&mut inputs)?;
    for (tensor, host) in tensors.outputs.iter_mut().zip(&outputs) {
        tensor.set(host)?;
    }
    for index in op.mutates() {
        tensors.inputs[*index].set(&inputs[*index])?;
    }
    Ok(())
}

/// An op and what it was recorded for.
struct Call {
    op: CpuOp,
    inputs: Vec<Desc>,
    outputs: Vec<Desc>,
    packs_weights: bool,
}

impl CpuKernel for Call {
    fn run(&self, bound: Vec<Lent<'_>>, team: Option<&Arc<dyn Team>>) -> std::result::Result<(), Problem> {
        self.call(bound, team).map_err(|error| problem(self.op.name(), &error))
    }
}

impl Call {
    fn call(&self, bound: Vec<Lent<'_>>, team: Option<&Arc<dyn Team>>) -> Result<()> {
        let descs = self.inputs.iter().chain(&self.outputs);
        let mut inputs = descs
            .zip(bound)
            .map(|(desc, bytes)| CpuTensor::new(*desc, bytes, self.packs_weights))
            .collect::<Result<Vec<_>>>()?;
        let outputs = inputs.split_off(self.inputs.len());
        self.op.run_on_cpu(CpuTensors { inputs, outputs, team })
    }
}

/// Writes a run of a file's rows to rows of a weight, in the weight's format.
struct Rows {
    from: &'static Format,
    to: &'static Format,
    /// Of the weight.
    shape: Shape,
    columns: usize,
    first_row: usize,
    rows: usize,
    /// The weight is packed.
    packs: bool,
}

impl CpuKernel for Rows {
    fn run(&self, bound: Vec<Lent<'_>>, _: Option<&Arc<dyn Team>>) -> std::result::Result<(), Problem> {
        self.take(bound).map_err(|error| problem("rows of a file", &error))
    }
}

impl Rows {
    fn take(&self, bound: Vec<Lent<'_>>) -> Result<()> {
        let Ok([Lent::Read(file, _), weight]) = <[Lent<'_>; 2]>::try_from(bound) else {
            bail!(Internal, "rows of a file go to one weight")
        };
        let Some(file) = file.get(..self.rows * self.from.row_bytes(self.columns)?) else {
            bail!(Internal, "a run of a file ends before its rows")
        };
        let mut weight = match weight {
            Lent::Write(weight) => weight,
            Lent::Team(bytes) => return self.take_to_team(file, bytes),
            Lent::Read(..) => bail!(Internal, "a weight is written"),
        };
        let is_quantised = self.from.name != self.to.name;
        let mut rows =
            filled(0, if is_quantised && self.packs { self.rows * self.to.row_bytes(self.columns)? } else { 0 })?;
        let place = if self.packs {
            &mut rows[..]
        } else {
            let first = self.first_row * self.to.row_bytes(self.columns)?;
            let Some(place) = weight.bytes_mut().get_mut(first..) else {
                bail!(Internal, "a weight ends before its rows")
            };
            place
        };
        if is_quantised {
            self.quantise(file, place)?;
        } else if !self.packs {
            let Some(place) = place.get_mut(..file.len()) else { bail!(Internal, "a weight ends before its rows") };
            place.copy_from_slice(file);
        }
        if self.packs {
            let rows = if is_quantised { &rows } else { file };
            pack_rows(self.to, rows, [self.rows, self.columns], self.first_row, weight.bytes_mut())?;
        }
        Ok(())
    }

    fn take_to_team(&self, file: &[u8], bytes: &TeamBytes) -> Result<()> {
        let weight = TeamWeight::new(bytes, Desc { shape: self.shape, dtype: DType::Weight(self.to) }, self.packs)?;
        if self.from.name == self.to.name {
            return weight.write_rows(self.first_row, self.rows, file);
        }
        let mut rows = filled(0, self.rows * self.to.row_bytes(self.columns)?)?;
        self.quantise(file, &mut rows)?;
        weight.write_rows(self.first_row, self.rows, &rows)
    }

    fn quantise(&self, file: &[u8], weight: &mut [u8]) -> Result<()> {
        let mut values = filled(0.0, file.len() / self.from.block_bytes * self.from.block_size)?;
        self.from.dequantize(file, &mut values)?;
        for (block, to) in values.chunks(self.to.block_size).zip(weight.chunks_exact_mut(self.to.block_bytes)) {
            let Some(bytes) = quantize_reference::reference(self.to, block) else {
                bail!(DtypeMismatch, "weights of {} can't be quantised to {}", self.from.name, self.to.name)
            };
            to.copy_from_slice(&bytes);
        }
        Ok(())
    }
}

impl Context {
    /// Records an op on the CPU's device.
    pub(super) fn run_on_cpu(&self, op: &dyn Op, inputs: &[&Tensor], outputs: &[Tensor]) -> Result<()> {
        let Some(kept) = op.on_cpu() else { bail!(Internal, "{} has no function for the CPU", op.name()) };
        let mutates = op.mutates();
        let read = inputs.iter().enumerate().map(|(number, tensor)| {
            let slice = tensor.slice();
            if mutates.contains(&number) {
                Binding::ReadWrite(number as u32, slice)
            } else {
                Binding::Read(number as u32, slice)
            }
        });
        let written = outputs.iter().zip(inputs.len() as u32..);
        let written = written.map(|(tensor, number)| Binding::ReadWrite(number, tensor.slice()));
        let bindings: Vec<Binding<'_>> = read.chain(written).collect();
        let call = Call {
            op: kept,
            inputs: inputs.iter().map(|tensor| tensor.desc()).collect(),
            outputs: outputs.iter().map(Tensor::desc).collect(),
            packs_weights: self.device().capabilities().packs_weights,
        };
        self.device().dispatch_on_cpu(op.name(), call, &bindings)
    }

    /// Records that a run of a file's rows becomes rows of a weight, from its block `first` of 32 on.
    pub(super) fn take_rows_on_cpu(
        &self,
        weight: &Tensor,
        from: &'static Format,
        file: BufferSlice,
        [first, blocks, blocks_per_row, columns]: [usize; 4],
    ) -> Result<()> {
        let DType::Weight(to) = weight.dtype() else {
            bail!(DtypeMismatch, "only weights are taken, not {:?}", weight.desc())
        };
        let (first_row, rows) = (first / blocks_per_row, blocks / blocks_per_row);
        let (all_rows, _) = weight.shape().matrix()?;
        let packs = self.device().capabilities().packs_weights && packed_bytes(to, all_rows, columns).is_some();
        let kernel = Rows { from, to, shape: weight.shape(), columns, first_row, rows, packs };
        let bindings = [Binding::Read(0, file), Binding::ReadWrite(1, weight.slice())];
        self.device().dispatch_on_cpu("rows", kernel, &bindings)
    }
}
