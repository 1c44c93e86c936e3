//! The tensors, kernels and batches of a device, which JavaScript knows by their numbers.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};

use super::info::Memory;
use super::kernel::Kernel;
use crate::array::{Array, Batch, Library, Plan};
use crate::error::Result;
use crate::gpu::Device;
use crate::tensor::{Context, ShapeCache};
use foldhash::fast::FixedState;

/// A batch, until it is disposed of.
pub type OpenBatch = RefCell<Option<Batch>>;

/// A plan, until it is disposed of.
pub type OpenPlan = RefCell<Option<Plan>>;

/// The tensors and kernels of one device, by their numbers.
pub struct Registry {
    pub library: Library,
    tensors: RefCell<HashMap<u32, Array, FixedState>>,
    kernels: RefCell<HashMap<u32, Rc<Kernel>>>,
    last_id: Cell<u32>,
    shapes: RefCell<ShapeCache>,
    /// Those that were not disposed of.
    batches: RefCell<HashMap<u32, Weak<OpenBatch>>>,
    plans: RefCell<Vec<Weak<OpenPlan>>>,
}

impl Registry {
    pub fn new(context: Context, shapes: ShapeCache) -> Self {
        Self {
            library: Library::new(context),
            tensors: RefCell::default(),
            kernels: RefCell::default(),
            last_id: Cell::default(),
            shapes: RefCell::new(shapes),
            batches: RefCell::default(),
            plans: RefCell::default(),
        }
    }

    pub fn context(&self) -> &Context {
        self.library.context()
    }

    pub fn device(&self) -> &Device {
        self.context().device()
    }

    fn next_id(&self) -> u32 {
        self.last_id.set(self.last_id.get() + 1);
        self.last_id.get()
    }

    pub fn insert(&self, tensor: Array) -> u32 {
        let id = self.next_id();
        self.tensors.borrow_mut().insert(id, tensor);
        id
    }

    /// The number of a tensor that `make` makes. Where nothing is to wait, it is computed at once.
    pub fn made(&self, make: impl FnOnce() -> Result<Array>) -> Result<u32> {
        // What waits would say so only when it is computed.
        self.device().check_usable()?;
        let tensor = make()?.as_result()?;
        if !self.device().is_lazy() {
            tensor.evaluate()?;
        }
        Ok(self.insert(tensor))
    }

    /// Makes an id that of another tensor.
    pub fn replace(&self, id: u32, tensor: Array) {
        // What hangs on the other one goes outside of the borrow.
        let before = self.tensors.borrow_mut().insert(id, tensor);
        drop(before);
    }

    pub fn tensor(&self, id: u32) -> Result<Array> {
        self.tensors.borrow().get(&id).cloned().ok_or_else(|| err!(Disposed, "the tensor was disposed of"))
    }

    /// These tensors, in order.
    pub fn tensors(&self, ids: &[u32]) -> Result<Vec<Array>> {
        ids.iter().map(|id| self.tensor(*id)).collect()
    }

    pub fn remove(&self, tensor: u32) {
        // Outside of the borrow: what hangs on it goes with it.
        let removed = self.tensors.borrow_mut().remove(&tensor);
        drop(removed);
    }

    pub fn insert_kernel(&self, kernel: Kernel) -> u32 {
        let id = self.next_id();
        self.kernels.borrow_mut().insert(id, Rc::new(kernel));
        id
    }

    pub fn kernel(&self, id: u32) -> Result<Rc<Kernel>> {
        self.kernels.borrow().get(&id).cloned().ok_or_else(|| err!(Disposed, "the kernel's device was destroyed"))
    }

    pub fn insert_batch(&self, batch: &Rc<OpenBatch>) -> u32 {
        let id = self.next_id();
        self.batches.borrow_mut().insert(id, Rc::downgrade(batch));
        id
    }

    pub fn insert_plan(&self, plan: &Rc<OpenPlan>) {
        let mut plans = self.plans.borrow_mut();
        plans.retain(|plan| plan.strong_count() > 0);
        plans.push(Rc::downgrade(plan));
    }

    pub fn remove_batch(&self, id: u32) {
        self.batches.borrow_mut().remove(&id);
    }

    /// The number of a shape. It is valid while the shape is kept.
    pub fn shape(&self, dims: &[u32]) -> Result<u32> {
        let dims: Vec<usize> = dims.iter().map(|dim| *dim as usize).collect();
        self.shapes.borrow_mut().intern(&dims)
    }

    /// The dimensions of a shape's number.
    pub fn dims(&self, shape: u32) -> Result<Vec<usize>> {
        Ok(self.shapes.borrow().shape(shape)?.dims().to_vec())
    }

    pub fn memory(&self) -> Memory {
        let tensors = self.tensors.borrow();
        Memory {
            tensors: tensors.len(),
            tensor_bytes: tensors.values().map(|tensor| tensor.elements() as u64 * tensor.dtype().size() as u64).sum(),
            device: self.device().memory(),
        }
    }

    /// Frees everything, with the device.
    pub fn destroy(&self) {
        drop(self.tensors.take());
        self.kernels.borrow_mut().clear();
        for batch in self.batches.take().values().filter_map(Weak::upgrade) {
            batch.take();
        }
        for plan in self.plans.take().iter().filter_map(Weak::upgrade) {
            plan.take();
        }
        self.device().destroy();
    }
}
