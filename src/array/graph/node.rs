//! Arrays as handles of nodes: what is computed, and what waits until somebody needs it.
//!
//! Invariants:
//! - A node's shape and type never change; its state changes once, from pending to stored.
//! - What a pending node computes holds at most [`MOST_STEPS`] steps, so that no chain grows without end and no function recurses deeply.
//! - Memory that pending nodes read is not written before they are computed (`Storage::dependents`).

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use crate::array::dtype::DType;
use crate::array::layout::Layout;
use crate::array::library::{Library, Waiting};
use crate::tensor::{Shape, Tensor};

/// The most steps that are put together into one kernel.
pub(crate) const MOST_STEPS: usize = 32;

/// A multi-dimensional array on the GPU. What it holds is computed when it is needed. Cloning clones the handle.
#[derive(Clone)]
pub struct Array(pub(crate) Rc<Node>);

pub(crate) struct Node {
    pub library: Library,
    pub shape: Shape,
    pub dtype: DType,
    pub state: RefCell<State>,
    /// A kernel of something that builds on it has computed it along the way, so that nothing may want it any more.
    pub was_inlined: Cell<bool>,
}

#[derive(Clone)]
pub(crate) enum State {
    Stored(Stored),
    /// The bits of one element, which all are.
    Constant(u32),
    /// i32: the place of an element in this layout, such as its number.
    Places(Layout),
    Pending(Rc<Pending>),
}

/// Elements in memory.
#[derive(Clone)]
pub(crate) struct Stored {
    pub storage: Rc<Storage>,
    pub layout: Layout,
}

/// Memory, which views share.
pub(crate) struct Storage {
    /// All of it, as one dimension of words or of 16-bit elements.
    pub tensor: Tensor,
    /// Nodes that are not computed and read it.
    dependents: RefCell<Vec<Weak<Node>>>,
}

/// What a node that is not computed stands for.
pub(crate) enum Pending {
    /// A function of elements (`functions.wgsl`) of arrays that broadcast to the node's shape.
    Apply { function: &'static str, inputs: Vec<Array>, steps: usize },
    /// A matrix product.
    Product(Product),
}

/// `a` [batch…, m, k] · `b` [batch…, k, n], of floats, in f32.
pub(crate) struct Product {
    pub a: Array,
    pub b: Array,
}

impl Storage {
    pub fn new(tensor: Tensor) -> Rc<Self> {
        Rc::new(Self { tensor, dependents: RefCell::default() })
    }

    fn add_dependent(&self, node: &Rc<Node>) {
        let mut dependents = self.dependents.borrow_mut();
        // Those that are gone or computed are swept when the list has grown to twice what it may hold.
        if dependents.len() == dependents.capacity() {
            dependents.retain(|dependent| dependent.upgrade().is_some_and(|node| node.is_pending()));
        }
        dependents.push(Rc::downgrade(node));
    }

    /// The nodes that read this memory and are not computed.
    pub fn take_dependents(&self) -> Vec<Array> {
        let dependents = self.dependents.take();
        dependents.iter().filter_map(Weak::upgrade).filter(|node| node.is_pending()).map(Array).collect()
    }
}

impl Node {
    pub fn is_pending(&self) -> bool {
        matches!(&*self.state.borrow(), State::Pending(_))
    }
}

impl Array {
    pub(crate) fn new(library: &Library, shape: Shape, dtype: DType, state: State) -> Self {
        let was_inlined = Cell::new(false);
        Self(Rc::new(Node { library: library.clone(), shape, dtype, state: RefCell::new(state), was_inlined }))
    }

    pub(crate) fn stored(library: &Library, dtype: DType, stored: Stored) -> Self {
        Self::new(library, stored.layout.shape(), dtype, State::Stored(stored))
    }

    /// A node that waits. Memory that it reads hears of it.
    pub(crate) fn pending(library: &Library, shape: Shape, dtype: DType, pending: Pending) -> Self {
        let array = Self::new(library, shape, dtype, State::Pending(Rc::new(pending)));
        array.each_storage(&mut |storage| storage.add_dependent(&array.0));
        let waiting: Rc<dyn Waiting> = array.0.clone();
        library.note_pending(Rc::downgrade(&waiting));
        array
    }

    /// The shape.
    pub fn shape(&self) -> Shape {
        self.0.shape
    }

    /// The dimensions, outermost first.
    pub fn dims(&self) -> &[usize] {
        self.0.shape.dims()
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.0.shape.elements()
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// What it was made with.
    pub fn library(&self) -> &Library {
        &self.0.library
    }

    /// Steps that a kernel takes for an element of it; 0 for what lies in memory.
    pub(crate) fn steps(&self) -> usize {
        match &*self.0.state.borrow() {
            State::Pending(pending) => match &**pending {
                Pending::Apply { steps, .. } => *steps,
                Pending::Product(_) => 1,
            },
            _ => 0,
        }
    }

    /// Whether a matrix product is among what it waits for.
    pub(crate) fn has_product(&self) -> bool {
        match &*self.0.state.borrow() {
            State::Pending(pending) => match &**pending {
                Pending::Apply { inputs, .. } => inputs.iter().any(Array::has_product),
                Pending::Product(_) => true,
            },
            _ => false,
        }
    }

    /// Calls `visit` with the memory that it reads, once for each place where it does.
    pub(crate) fn each_storage(&self, visit: &mut dyn FnMut(&Rc<Storage>)) {
        let state = self.0.state.borrow().clone();
        match &state {
            State::Stored(stored) => visit(&stored.storage),
            State::Constant(_) | State::Places(_) => {}
            State::Pending(pending) => match &**pending {
                Pending::Apply { inputs, .. } => inputs.iter().for_each(|input| input.each_storage(visit)),
                Pending::Product(Product { a, b }) => [a, b].iter().for_each(|input| input.each_storage(visit)),
            },
        }
    }

    /// The bits of all elements, if they are known without the GPU.
    pub(crate) fn constant(&self) -> Option<u32> {
        match &*self.0.state.borrow() {
            State::Constant(bits) => Some(*bits),
            _ => None,
        }
    }
}
