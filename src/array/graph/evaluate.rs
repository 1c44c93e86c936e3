//! Computes nodes: one kernel for a node and what it builds on.

use std::rc::Rc;

use super::compiled::{Call, ELEMENTS, ELEMENTS_EACH, Finish, Form, ProductForm, ProductKernel, Reduction};
use super::node::{Array, Node, Pending, Product, State, Storage, Stored};
use super::program::{Bound, Numbering, build};
use crate::array::dtype::DType;
use crate::array::layout::Layout;
use crate::array::waiting::Waiting;
use crate::error::Result;
use crate::gpu::{BINDING_ALIGNMENT, Capabilities, Grid};
use crate::tensor::{MAX_RANK, Shape, Tensor, grid_2d};

/// The size of workgroups that reduce a line together.
const GROUP: u32 = 256;
/// A line that one invocation reduces: short, or a sum loses digits.
const SERIAL: usize = 1024;
/// Invocations that keep a large GPU busy.
const BUSY: usize = 1 << 18;

impl Waiting for Node {
    fn waits(&self) -> bool {
        self.is_pending()
    }

    fn is_wanted(&self) -> bool {
        !self.was_inlined.get()
    }

    fn compute(self: Rc<Self>) -> Result<()> {
        Array::of(self).evaluate()
    }
}

impl Array {
    /// Computes it now, without a submit.
    pub fn evaluate(&self) -> Result<()> {
        self.stored_now().map(|_| ())
    }

    /// Computes it now unless it has memory, is known without the GPU, or is part of what was computed.
    pub(crate) fn compute_if_wanted(&self) -> Result<()> {
        if self.0.is_pending() && !self.0.was_inlined.get() { self.evaluate() } else { Ok(()) }
    }

    /// Its elements in memory, computed if need be.
    pub(crate) fn stored_now(&self) -> Result<Stored> {
        if let State::Stored(stored) = &*self.0.state.borrow() {
            return Ok(stored.clone());
        }
        let (origin, layout) = self.origin();
        let storage = if origin.is_same(self) { Storage::new(self.computed()?) } else { origin.stored_now()?.storage };
        let stored = Stored { storage, layout };
        self.set_stored(stored.clone());
        Ok(stored)
    }

    /// Its elements side by side, in row-major order, in a tensor of this shape and type of storage.
    pub(crate) fn tensor(&self) -> Result<Tensor> {
        match self.tensor_in_place()? {
            Some(tensor) => Ok(tensor),
            None => self.computed()?.reshaped(self.shape()),
        }
    }

    /// The same in its own memory. `None` if elements don't lie side by side, or begin where no binding may.
    pub(crate) fn tensor_in_place(&self) -> Result<Option<Tensor>> {
        let Stored { storage, layout } = self.stored_now()?;
        let offset = (layout.offset() * self.dtype().size()) as u64;
        if !layout.is_contiguous() || !offset.is_multiple_of(BINDING_ALIGNMENT) {
            return Ok(None);
        }
        storage.tensor.part(layout.offset(), self.shape()).map(Some)
    }

    /// Computes it into new memory.
    fn computed(&self) -> Result<Tensor> {
        let out = self.library().memory(self.elements(), self.dtype())?;
        if self.elements() > 0 {
            // Two elements of 16 bits share a word, which the kernels of products don't write.
            self.store_products(self.dtype().size() == 2)?;
            self.compute_into(&out)?;
        }
        Ok(out)
    }

    fn compute_into(&self, out: &Tensor) -> Result<()> {
        let bound = build(self, self.shape(), &Numbering::default())?;
        let device = self.library().context().device();
        let capabilities = device.capabilities();
        let elements = self.elements();
        if let Some(pending) = &bound.product {
            return self.compute_product(pending, &bound, out);
        }
        let form = Form::Elementwise { out: self.dtype(), strided: false };
        // An invocation takes a word of 16-bit elements, or several of four bytes.
        let each = if self.dtype().size() == 2 { 2 } else { ELEMENTS_EACH };
        let grid = grid_2d(elements.div_ceil(64 * each), capabilities.max_workgroups_per_dimension);
        let call = Call {
            form,
            program: &bound.program,
            words: &bound.words,
            memory: bound.slices(),
            elements,
            form_words: [0; 3],
            more_words: &[],
            inputs: &[],
            out: out.slice(),
            grid,
            label: self.label(),
        };
        self.library().kernels().dispatch(device, &call)
    }

    /// What a kernel that computes it is called, if no functions say more.
    fn label(&self) -> &'static str {
        match &*self.0.state.borrow() {
            State::Constant(_) => "fill",
            State::Places(_) => "arange",
            _ => ELEMENTS,
        }
    }

    /// Stores the product that it builds on if it was computed along the way of something else before, which costs more than its memory; or
    /// in any case.
    fn store_products(&self, always: bool) -> Result<()> {
        let state = self.0.state.borrow().clone();
        let State::Pending(pending) = &state else { return Ok(()) };
        let Pending::Apply { inputs, .. } = &**pending else { return Ok(()) };
        for input in inputs.iter().filter(|input| input.has_product()) {
            if input.is_product() && (always || input.0.was_inlined.get()) {
                input.stored_now()?;
            } else {
                input.store_products(always)?;
            }
        }
        Ok(())
    }

    fn is_product(&self) -> bool {
        matches!(&*self.0.state.borrow(), State::Pending(pending) if matches!(**pending, Pending::Product(_)))
    }

    fn compute_product(&self, pending: &Rc<Pending>, bound: &Bound, out: &Tensor) -> Result<()> {
        let Pending::Product(Product { a, b }) = &**pending else { bail!(Internal, "a product is wanted") };
        let device = self.library().context().device();
        let capabilities = device.capabilities();
        let rank = self.dims().len();
        let (rows, columns) = (self.dims()[rank - 2], self.dims()[rank - 1]);
        let inner = a.dims()[a.dims().len() - 1];
        let batch = &self.dims()[..rank - 2];
        let mut words = [1u32; 4];
        let first = 4 - batch.len();
        for (word, dim) in words[first..].iter_mut().zip(batch) {
            *word = *dim as u32;
        }
        let mut words = words.to_vec();
        let mut slices = Vec::with_capacity(2);
        for operand in [a, b] {
            let stored = operand.stored_now()?;
            words.extend(operand_words(&stored.layout, batch)?);
            slices.push(stored.storage.tensor.slice());
        }
        let kernel = product_kernel(rows, columns, batch.iter().product(), capabilities);
        let form = ProductForm { a: a.dtype(), b: b.dtype(), out: self.dtype(), kernel };
        let grid = product_grid(kernel, rows, columns, batch.iter().product());
        let call = Call {
            form: Form::Product(form),
            program: &bound.program,
            words: &bound.words,
            memory: bound.slices(),
            elements: self.elements(),
            form_words: [rows as u32, inner as u32, columns as u32],
            more_words: &words,
            inputs: &slices,
            out: out.slice(),
            grid,
            label: "matmul",
        };
        self.library().kernels().dispatch(device, &call)
    }

    /// Computes it into a view of other memory, of elements of four bytes.
    pub(crate) fn compute_to(&self, target: &Stored) -> Result<()> {
        if self.elements() == 0 {
            return Ok(());
        }
        if self.has_product() {
            self.stored_now()?;
        }
        let numbering = Numbering { target: Some(target.layout), ..Numbering::default() };
        let bound = build(self, target.layout.shape(), &numbering)?;
        let device = self.library().context().device();
        let limit = device.capabilities().max_workgroups_per_dimension;
        let elements = target.layout.shape().elements();
        let call = Call {
            form: Form::Elementwise { out: self.dtype(), strided: true },
            program: &bound.program,
            words: &bound.words,
            memory: bound.slices(),
            elements,
            form_words: [0; 3],
            more_words: &[],
            inputs: &[],
            out: target.storage.tensor.slice(),
            grid: grid_2d(elements.div_ceil(64 * ELEMENTS_EACH), limit),
            label: ELEMENTS,
        };
        self.library().kernels().dispatch(device, &call)
    }

    /// Reduces dimensions: the result has those of `kept`, in the type in which elements are computed. No dimension is 0.
    pub(crate) fn reduced(&self, kept: &[usize], reduction: Reduction, finish: Finish) -> Result<Array> {
        let line = self.line_of(kept)?;
        let (outputs, length) = (line.outputs, line.length);
        let device = self.library().context().device();
        let (group, parts) = plan(outputs, length, line.is_contiguous, device.capabilities());
        let part_length = length.div_ceil(parts);
        let parts = length.div_ceil(part_length);
        let is_last = parts == 1;
        let dtype = reduction.dtype.computed();
        let out = self.library().memory(outputs * parts, dtype)?;
        let now = if is_last { finish } else { Finish::Keep };
        let grid = reduction_grid(outputs * parts, group, device.capabilities());
        let call = Call {
            form: Form::Reduce { reduction, group, finish: now },
            program: &line.bound.program,
            words: &line.bound.words,
            memory: line.bound.slices(),
            elements: outputs * parts,
            form_words: [parts as u32, part_length as u32, length as u32],
            more_words: &[],
            inputs: &[],
            out: out.slice(),
            grid,
            label: reduction.name(),
        };
        self.library().kernels().dispatch(device, &call)?;
        let sums = self.library().adopt(&out.reshaped(Shape::from([parts, outputs]))?, dtype)?;
        if is_last {
            return sums.viewed(line.shape);
        }
        let total = sums.reduced(&[1], reduction, Finish::Keep)?;
        let total = match finish {
            Finish::Keep => total,
            Finish::Mean => total.divided_by(length)?,
        };
        total.viewed(line.shape)
    }

    /// The place of the first largest or smallest element along the dimensions that are not `kept`, taken as one.
    pub(crate) fn arg_reduced(&self, kept: &[usize], largest: bool) -> Result<Array> {
        let line = self.line_of(kept)?;
        let device = self.library().context().device();
        let capabilities = device.capabilities();
        // Barriers cost most of the time on software adapters.
        let shortest = if capabilities.software { 4 * SERIAL } else { 32 };
        let group = (line.length > shortest).then_some(GROUP);
        let out = self.library().memory(line.outputs, DType::I32)?;
        let call = Call {
            form: Form::ArgReduce { largest, group },
            program: &line.bound.program,
            words: &line.bound.words,
            memory: line.bound.slices(),
            elements: line.outputs,
            form_words: [0, 0, line.length as u32],
            more_words: &[],
            inputs: &[],
            out: out.slice(),
            grid: reduction_grid(line.outputs, group, capabilities),
            label: if largest { "argmax" } else { "argmin" },
        };
        self.library().kernels().dispatch(device, &call)?;
        self.library().adopt(&out, DType::I32)?.viewed(line.shape)
    }

    fn line_of(&self, kept: &[usize]) -> Result<Line> {
        if self.has_product() {
            self.stored_now()?;
        }
        let reduced: Vec<usize> = (0..self.dims().len()).filter(|dim| !kept.contains(dim)).collect();
        let order: Vec<usize> = kept.iter().chain(&reduced).copied().collect();
        let numbering = Numbering { order: Some(&order), line_dims: reduced.len(), target: None };
        let dims: Vec<usize> = kept.iter().map(|dim| self.dims()[*dim]).collect();
        Ok(Line {
            bound: build(self, self.shape(), &numbering)?,
            shape: Shape::new(&dims),
            outputs: dims.iter().product(),
            length: reduced.iter().map(|dim| self.dims()[*dim]).product(),
            is_contiguous: reduced.last().is_none_or(|dim| *dim + 1 == self.dims().len()),
        })
    }
}

/// What a reduction runs on.
struct Line {
    bound: Bound,
    shape: Shape,
    outputs: usize,
    length: usize,
    /// Whether neighbours of a line lie side by side, as far as shapes say it.
    is_contiguous: bool,
}

/// Whether a workgroup takes a part of a line, and into how many parts a line is cut.
fn plan(outputs: usize, length: usize, is_contiguous: bool, capabilities: &Capabilities) -> (Option<u32>, usize) {
    if capabilities.software || (!is_contiguous && outputs >= 256) || length <= 16 {
        // So many parts that a GPU has enough to do.
        let busy = if capabilities.software { 1 } else { (BUSY / outputs).clamp(1, length.div_ceil(16)) };
        return (None, length.div_ceil(SERIAL).max(busy));
    }
    let longest = if outputs < 256 { 64 * GROUP as usize } else { SERIAL * GROUP as usize };
    let group = if length <= 128 { 64 } else { GROUP };
    (Some(group), length.div_ceil(longest))
}

fn reduction_grid(elements: usize, group: Option<u32>, capabilities: &Capabilities) -> Grid {
    let workgroups = if group.is_some() { elements } else { elements.div_ceil(64) };
    grid_2d(workgroups, capabilities.max_workgroups_per_dimension)
}

/// Large tiles read less, and small ones keep more of a GPU busy.
fn product_kernel(rows: usize, columns: usize, batch: usize, capabilities: &Capabilities) -> ProductKernel {
    const ENOUGH: usize = 256;
    if capabilities.software {
        return ProductKernel::Direct;
    }
    let large = rows.div_ceil(128) * columns.div_ceil(128) * batch;
    ProductKernel::Tiled { side: if large >= ENOUGH { 16 } else { 8 } }
}

fn product_grid(kernel: ProductKernel, rows: usize, columns: usize, batch: usize) -> Grid {
    let tile = match kernel {
        ProductKernel::Tiled { side } => (8 * side as usize, 8 * side as usize),
        ProductKernel::Direct => (16, 64),
    };
    [columns.div_ceil(tile.1) as u32, rows.div_ceil(tile.0) as u32, batch as u32]
}

/// Offset, the strides of the last two dimensions, and those of four batch dimensions.
fn operand_words(layout: &Layout, batch: &[usize]) -> Result<[u32; 7]> {
    let rank = layout.dims().len();
    let mut dims = batch.to_vec();
    dims.extend_from_slice(&layout.dims()[rank - 2..]);
    let Some(layout) = layout.broadcast(Shape::new(&dims)) else {
        bail!(Internal, "{} does not broadcast to {dims:?}", layout.shape())
    };
    let strides = layout.strides();
    let (outer, matrix) = strides.split_at(strides.len() - 2);
    let mut words = [0u32; 7];
    words[0] = layout.offset() as u32;
    (words[1], words[2]) = (matrix[0] as u32, matrix[1] as u32);
    for (word, stride) in words[3 + (MAX_RANK - 2 - outer.len())..].iter_mut().zip(outer) {
        *word = *stride as u32;
    }
    Ok(words)
}
