//! Arrays as handles of nodes: what is computed, and what waits until somebody needs it.
//!
//! Invariants:
//! - A node's shape and type never change; its state changes once, from pending to stored.
//! - What a pending node computes holds at most [`MOST_STEPS`] steps, so that no chain grows without end and no function recurses deeply.
//! - Memory that pending nodes read is not written before they are computed (`Storage::dependents`).
//! - A node that gets memory tells that memory of the nodes that wait for it (`Links::dependents`).
//! - Views of a node without memory, such as of zeros, get a part of its memory before one of them is written (`View`).

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use crate::array::dtype::DType;
use crate::array::gradient::history::History;
use crate::array::layout::Layout;
use crate::array::library::Library;
use crate::array::sweep::push_swept;
use crate::array::waiting::{Waiting, Written};
use crate::error::Result;
use crate::tensor::{Shape, Tensor};

/// The most steps that are put together into one kernel.
pub(crate) const MOST_STEPS: usize = 32;

/// A multi-dimensional array on the GPU. What it holds is computed when it is needed. Cloning clones the handle.
#[derive(Clone)]
pub struct Array(pub(crate) Rc<Node>, Option<Rc<History<Array>>>);

pub(crate) struct Node {
    pub library: Library,
    pub shape: Shape,
    pub dtype: DType,
    pub state: RefCell<State>,
    /// A kernel of something that builds on it has computed it along the way, so that nothing may want it any more.
    pub was_inlined: Cell<bool>,
    /// Later nodes have higher numbers.
    pub number: u64,
    /// What it is a view of, if that had no memory when the view was made.
    view: Option<View>,
    links: RefCell<Links>,
}

/// A part of a node that has no memory.
#[derive(Clone)]
struct View {
    of: Array,
    /// In the elements of that node.
    layout: Layout,
}

/// Who builds on a node.
#[derive(Default)]
struct Links {
    /// Nodes that wait and have it as an input.
    dependents: Vec<Weak<Node>>,
    /// Its views that were made without memory.
    views: Vec<Weak<Node>>,
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
    /// How often it was written.
    version: Cell<u64>,
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
        Rc::new(Self { tensor, dependents: RefCell::default(), version: Cell::default() })
    }

    /// How often it was written.
    pub fn version(&self) -> u64 {
        self.version.get()
    }

    fn add_dependent(&self, node: &Rc<Node>) {
        add(&mut self.dependents.borrow_mut(), node);
    }
}

impl Written for Storage {
    fn compute_dependents(&self) -> Result<()> {
        // What one of them computes may be another one.
        let dependents: Vec<Array> = waiting(&self.dependents.borrow()).map(Array::of).collect();
        dependents.iter().try_for_each(|dependent| dependent.stored_now().map(|_| ()))
    }

    fn note_write(&self) {
        self.version.set(self.version.get() + 1);
    }
}

fn add(dependents: &mut Vec<Weak<Node>>, node: &Rc<Node>) {
    push_swept(dependents, Rc::downgrade(node), |dependent| dependent.upgrade().is_some_and(|node| node.is_pending()));
}

fn waiting(dependents: &[Weak<Node>]) -> impl Iterator<Item = Rc<Node>> {
    dependents.iter().filter_map(Weak::upgrade).filter(|node| node.is_pending())
}

impl Node {
    pub fn is_pending(&self) -> bool {
        matches!(&*self.state.borrow(), State::Pending(_))
    }

    /// Tells memory of the nodes that wait for this one, and of those that wait for them.
    fn tell(&self, storage: &Storage) {
        for dependent in waiting(&self.links.borrow().dependents) {
            storage.add_dependent(&dependent);
            dependent.tell(storage);
        }
    }
}

impl Array {
    pub(crate) fn new(library: &Library, shape: Shape, dtype: DType, state: State) -> Self {
        Self::with_view(library, shape, dtype, state, None)
    }

    fn with_view(library: &Library, shape: Shape, dtype: DType, state: State, view: Option<View>) -> Self {
        Self::of(Rc::new(Node {
            library: library.clone(),
            shape,
            dtype,
            state: RefCell::new(state),
            was_inlined: Cell::new(false),
            number: library.next_number(),
            view,
            links: RefCell::default(),
        }))
    }

    /// A view of this node, which has no memory. `layout` is a part of this node's elements.
    pub(crate) fn view_without_memory(&self, layout: Layout, state: State) -> Self {
        let view = View { of: self.with_history(None), layout };
        let array = Self::with_view(self.library(), layout.shape(), self.dtype(), state, Some(view));
        let views = &mut self.0.links.borrow_mut().views;
        push_swept(views, Rc::downgrade(&array.0), |view| view.strong_count() > 0);
        array
    }

    /// What it was made a view of when that had no memory, and where: itself as a whole otherwise.
    pub(crate) fn origin(&self) -> (Self, Layout) {
        match &self.0.view {
            Some(View { of, layout }) => (of.clone(), *layout),
            None => (self.clone(), Layout::contiguous(self.shape())),
        }
    }

    /// Gives it memory, from which what waits for it reads from now on.
    pub(crate) fn set_stored(&self, stored: Stored) {
        self.note_change();
        self.0.tell(&stored.storage);
        *self.0.state.borrow_mut() = State::Stored(stored);
    }

    /// Gives what was made a view of the same node parts of one memory, before one of them is written.
    pub(crate) fn share_memory(&self) -> Result<()> {
        let (origin, _) = self.origin();
        let views: Vec<Self> = origin.0.links.borrow().views.iter().filter_map(Weak::upgrade).map(Array::of).collect();
        views.iter().try_for_each(|view| view.stored_now().map(|_| ()))
    }

    pub(crate) fn stored(library: &Library, dtype: DType, stored: Stored) -> Self {
        Self::new(library, stored.layout.shape(), dtype, State::Stored(stored))
    }

    /// A node that waits. Memory that it reads hears of it, and so do inputs that have none.
    pub(crate) fn pending(library: &Library, shape: Shape, dtype: DType, pending: Pending) -> Self {
        // What is only computed is not followed: histories live as long as somebody can go back through them.
        let pending = match pending {
            Pending::Apply { function, inputs, steps } => {
                let inputs = inputs.into_iter().map(|input| Self::of(input.0)).collect();
                Pending::Apply { function, inputs, steps }
            }
            Pending::Product(Product { a, b }) => Pending::Product(Product { a: Self::of(a.0), b: Self::of(b.0) }),
        };
        let array = Self::new(library, shape, dtype, State::Pending(Rc::new(pending)));
        array.each_storage(&mut |storage| storage.add_dependent(&array.0));
        array.each_input(&mut |input| {
            // What nobody else holds is never written, such as a number beside an array.
            if Rc::strong_count(&input.0) > 1 && !matches!(&*input.0.state.borrow(), State::Stored(_)) {
                add(&mut input.0.links.borrow_mut().dependents, &array.0);
            }
        });
        let waiting: Rc<dyn Waiting> = array.0.clone();
        library.note_pending(Rc::downgrade(&waiting));
        array
    }

    /// A handle of a node.
    pub(crate) fn of(node: Rc<Node>) -> Self {
        Self(node, None)
    }

    /// What it was computed from, if its gradient goes anywhere.
    pub(crate) fn history(&self) -> Option<&Rc<History<Array>>> {
        self.1.as_ref()
    }

    /// A handle of the same node with another history.
    pub(crate) fn with_history(&self, history: Option<Rc<History<Array>>>) -> Self {
        Self(self.0.clone(), history)
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

    /// Whether both are handles of one node.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    /// Notes that a kernel of something else computes it.
    pub(crate) fn set_inlined(&self) {
        if !self.0.was_inlined.get() {
            self.note_change();
            self.0.was_inlined.set(true);
        }
    }

    /// Lets a trial keep it as it is.
    fn note_change(&self) {
        self.library().trials().note_change(self.0.number, || {
            let node = self.0.clone();
            let (state, was_inlined) = (node.state.borrow().clone(), node.was_inlined.get());
            Box::new(move || {
                node.was_inlined.set(was_inlined);
                let has_memory = |state: &State| matches!(state, State::Stored(_));
                let got_memory = !has_memory(&state) && has_memory(&node.state.replace(state));
                got_memory.then_some(node as Rc<dyn Waiting>)
            })
        });
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

    fn each_input(&self, visit: &mut dyn FnMut(&Array)) {
        if let State::Pending(pending) = &*self.0.state.borrow() {
            match &**pending {
                Pending::Apply { inputs, .. } => inputs.iter().for_each(visit),
                Pending::Product(Product { a, b }) => [a, b].into_iter().for_each(visit),
            }
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
