//! From nodes to the program of one kernel, and what it runs on.

use std::rc::Rc;

use super::form::{Access, Leaf, Program, Step};
use super::node::{Array, Node, Pending, State, Storage};
use crate::array::dtype::DType;
use crate::array::layout::Layout;
use crate::error::Result;
use crate::gpu::BufferSlice;
use crate::tensor::Shape;

/// A program with what it runs on.
pub(super) struct Bound {
    pub program: Program,
    pub memory: Vec<Rc<Storage>>,
    /// The dimensions, then for each leaf what it needs: place and strides, or its bits; then place and strides of what is written.
    pub words: Vec<u32>,
    pub product: Option<Rc<Pending>>,
}

impl Bound {
    /// All that its memory holds, to be bound.
    pub fn slices(&self) -> Vec<BufferSlice> {
        self.memory.iter().map(|storage| storage.tensor.slice()).collect()
    }
}

struct Builder {
    shape: Shape,
    program: Program,
    memory: Vec<Rc<Storage>>,
    /// Of each leaf.
    layouts: Vec<Option<Layout>>,
    constants: Vec<u32>,
    /// Nodes that have values already.
    seen: Vec<(*const Node, u8)>,
    product: Option<Rc<Pending>>,
    inlined: Vec<Array>,
}

/// How a program's elements are numbered.
#[derive(Default)]
pub(super) struct Numbering<'a> {
    /// The dimensions in this order; by default from the outermost.
    pub order: Option<&'a [usize]>,
    /// The last dimensions in that order, which make up the line of an output; none in elementwise kernels.
    pub line_dims: usize,
    /// Where elements are written, if not side by side.
    pub target: Option<Layout>,
}

impl Numbering<'_> {
    fn is_natural(&self) -> bool {
        self.order.is_none() && self.line_dims == 0 && self.target.is_none()
    }
}

/// The program of `result`, broadcast to `shape`.
pub(super) fn build(result: &Array, shape: Shape, numbering: &Numbering<'_>) -> Result<Bound> {
    let mut builder = Builder {
        shape,
        program: Program::default(),
        memory: Vec::new(),
        layouts: Vec::new(),
        constants: Vec::new(),
        seen: Vec::new(),
        product: None,
        inlined: Vec::new(),
    };
    builder.program.result = builder.value(result)?;
    builder.number_values();
    for array in &builder.inlined {
        array.set_inlined();
    }
    if numbering.is_natural() && builder.layouts.iter().flatten().all(Layout::is_contiguous) {
        return Ok(builder.bind_flat());
    }
    builder.bind(numbering)
}

/// Marks the number of a step while leaves are still being added.
const STEP: u8 = 0x80;

impl Builder {
    fn value(&mut self, array: &Array) -> Result<u8> {
        let address = Rc::as_ptr(&array.0);
        if let Some((_, value)) = self.seen.iter().find(|(node, _)| *node == address) {
            return Ok(*value);
        }
        let state = array.0.state.borrow().clone();
        let value = match state {
            State::Constant(bits) => self.leaf(Leaf::Constant(array.dtype()), None, bits),
            State::Places(layout) => {
                let layout = self.broadcast(&layout)?;
                self.leaf(Leaf::Places(Access::Strided), Some(layout), 0)
            }
            State::Stored(stored) => {
                let layout = self.broadcast(&stored.layout)?;
                let binding = self.binding(&stored.storage);
                let leaf = Leaf::Memory { binding, dtype: array.dtype(), access: Access::Strided };
                self.leaf(leaf, Some(layout), 0)
            }
            State::Pending(pending) => {
                self.inlined.push(array.clone());
                match &*pending {
                    Pending::Product(_) => {
                        self.product = Some(pending.clone());
                        self.leaf(Leaf::Product, None, 0)
                    }
                    Pending::Apply { function, inputs, .. } => {
                        let inputs = inputs.iter().map(|input| self.value(input)).collect::<Result<Vec<u8>>>()?;
                        let value = self.step(function, inputs, array.dtype());
                        self.rounded(value, array.dtype())
                    }
                }
            }
        };
        self.seen.push((address, value));
        Ok(value)
    }

    fn broadcast(&self, layout: &Layout) -> Result<Layout> {
        match layout.broadcast(self.shape) {
            Some(layout) => Ok(layout),
            None => bail!(Internal, "{} does not broadcast to {}", layout.shape(), self.shape),
        }
    }

    fn binding(&mut self, storage: &Rc<Storage>) -> u8 {
        let known = self.memory.iter().position(|other| Rc::ptr_eq(other, storage));
        known.unwrap_or_else(|| {
            self.memory.push(storage.clone());
            self.memory.len() - 1
        }) as u8
    }

    fn leaf(&mut self, leaf: Leaf, layout: Option<Layout>, constant: u32) -> u8 {
        self.program.leaves.push(leaf);
        self.layouts.push(layout);
        self.constants.push(constant);
        self.program.leaves.len() as u8 - 1
    }

    fn step(&mut self, function: &'static str, inputs: Vec<u8>, dtype: DType) -> u8 {
        self.program.steps.push(Step { function, inputs, dtype: dtype.computed() });
        STEP | (self.program.steps.len() as u8 - 1)
    }

    /// What is stored in 16 bits loses its other bits after each operation, so that a kernel of several gives what several kernels give.
    fn rounded(&mut self, value: u8, dtype: DType) -> u8 {
        match dtype {
            DType::F16 => self.step("round_f16", vec![value], dtype),
            DType::BF16 => self.step("round_bf16", vec![value], dtype),
            _ => value,
        }
    }

    fn number_values(&mut self) {
        let leaves = self.program.leaves.len() as u8;
        let number = |value: &mut u8| {
            if *value & STEP != 0 {
                *value = leaves + (*value & !STEP);
            }
        };
        self.program.steps.iter_mut().flat_map(|step| &mut step.inputs).for_each(number);
        number(&mut self.program.result);
    }

    /// What [`Self::bind`] gives if all leaves lie side by side, which is most often so: all dimensions lie as one.
    fn bind_flat(mut self) -> Bound {
        let elements = self.shape.elements();
        let found = if elements == 1 { Access::Single } else { Access::Linear };
        self.program.rank = u8::from(elements != 1);
        let mut words = Vec::with_capacity(1 + self.layouts.len());
        words.extend((elements != 1).then_some(elements as u32));
        for (index, leaf) in self.program.leaves.iter_mut().enumerate() {
            leaf.set_access(found);
            words.push(self.layouts[index].map_or(self.constants[index], |layout| layout.offset() as u32));
        }
        Bound { program: self.program, memory: self.memory, words, product: self.product }
    }

    /// Joins dimensions that lie as one and says how each leaf is read.
    fn bind(mut self, numbering: &Numbering<'_>) -> Result<Bound> {
        let Numbering { line_dims, target, .. } = *numbering;
        let rank = self.shape.dims().len();
        let natural: Vec<usize> = (0..rank).collect();
        let order = numbering.order.unwrap_or(&natural);
        let all = self.layouts.iter().chain([&target]);
        let layouts: Vec<Option<Layout>> = all.map(|layout| layout.map(|layout| layout.permuted(order))).collect();
        let dims: Vec<usize> = order.iter().map(|dim| self.shape.dims()[*dim]).collect();
        let split = rank - line_dims;
        let outer = joined(&dims, 0..split, &layouts);
        let line = joined(&dims, split..rank, &layouts);
        let sizes = |groups: &[Joined]| groups.iter().map(|group| group.size as u32).collect::<Vec<u32>>();
        let mut words = sizes(&outer);
        words.extend(sizes(&line));
        self.program.rank = outer.len() as u8;
        self.program.line_rank = line.len() as u8;
        let strides_of = |layout: &Layout| -> Vec<isize> {
            outer.iter().chain(&line).map(|group| layout.strides()[group.innermost]).collect()
        };
        for (index, leaf) in self.program.leaves.iter_mut().enumerate() {
            let Some(layout) = &layouts[index] else {
                words.push(self.constants[index]);
                continue;
            };
            let strides = strides_of(layout);
            let found = if strides.iter().all(|stride| *stride == 0) {
                Access::Single
            } else if line_dims == 0 && strides == [1] {
                Access::Linear
            } else {
                Access::Strided
            };
            leaf.set_access(found);
            words.push(layout.offset() as u32);
            if found == Access::Strided {
                words.extend(strides.iter().map(|stride| *stride as u32));
            }
        }
        if let Some(Some(target)) = layouts.last() {
            words.push(target.offset() as u32);
            words.extend(strides_of(target).iter().map(|stride| *stride as u32));
        }
        Ok(Bound { program: self.program, memory: self.memory, words, product: self.product })
    }
}

/// Dimensions that lie as one.
struct Joined {
    size: usize,
    innermost: usize,
}

fn joined(dims: &[usize], range: std::ops::Range<usize>, layouts: &[Option<Layout>]) -> Vec<Joined> {
    let mut groups: Vec<Joined> = Vec::new();
    for dim in range.filter(|dim| dims[*dim] != 1) {
        let lies_as_one = |outer: usize| {
            layouts.iter().flatten().all(|layout| layout.strides()[outer] == layout.strides()[dim] * dims[dim] as isize)
        };
        match groups.last_mut() {
            Some(last) if lies_as_one(last.innermost) => (last.size, last.innermost) = (last.size * dims[dim], dim),
            _ => groups.push(Joined { size: dims[dim], innermost: dim }),
        }
    }
    groups
}
