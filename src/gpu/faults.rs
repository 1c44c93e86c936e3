//! Errors of a device. WebGPU reports an error some time after the call that caused it, so errors are collected here and
//! returned by the next wait.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

use crate::error::{Code, Error, Result};

pub(super) struct Faults {
    /// Whose memory it is, for people.
    place: &'static str,
    /// Shared with callbacks, which natively may run on another thread.
    reported: Arc<Mutex<Reported>>,
    /// Compilations and, in debug mode, submits whose outcome is not known yet.
    watched: RefCell<Vec<LocalBoxFuture<'static, Option<Error>>>>,
    /// The error scopes that are open, and whether one of their allocations was refused (`DeviceOptions::memory_limit`).
    scopes: RefCell<Vec<bool>>,
    /// The kernels of the last submits, named in errors.
    last_kernels: RefCell<Vec<Rc<str>>>,
    /// An error was handed out.
    has_failed: Cell<bool>,
}

/// Open error scopes, of memory within that of validation.
pub(super) struct Scopes {
    validation: wgpu::ErrorScopeGuard,
    memory: wgpu::ErrorScopeGuard,
}

/// What closed scopes will tell.
pub(super) struct Outcome {
    /// An allocation was refused, which is known at once.
    pub is_refused: bool,
    place: &'static str,
    memory: LocalBoxFuture<'static, Option<wgpu::Error>>,
    validation: LocalBoxFuture<'static, Option<wgpu::Error>>,
}

impl Outcome {
    /// What went wrong with `what`, which needed `needed` bytes.
    pub async fn error(self, what: &str, needed: u64) -> Option<Error> {
        // Both are asked for, since nobody else hears of them.
        let (memory, validation) = (self.memory.await, self.validation.await);
        if self.is_refused || memory.is_some() {
            return Some(no_room(self.place, what, needed));
        }
        let error = validation?;
        Some(err!(GpuValidation, "{} refused {what}: {error}", self.place))
    }
}

#[derive(Default)]
struct Reported {
    first: Option<Error>,
    lost: Option<String>,
    /// The futures that wait for the device to be lost.
    waiting: Vec<oneshot::Sender<String>>,
}

impl Faults {
    /// An application's own device keeps its handler of uncaptured errors; on it, submits are watched one by one.
    pub fn watch(device: &wgpu::Device, is_foreign: bool, is_cpu: bool) -> Self {
        let place = if is_cpu { "the CPU" } else { "the GPU" };
        let reported = Arc::new(Mutex::new(Reported::default()));
        if !is_foreign {
            let sink = reported.clone();
            device.on_uncaptured_error(Arc::new(move |error| {
                if let Ok(mut reported) = sink.lock() {
                    reported.first.get_or_insert_with(|| typed(place, error));
                }
            }));
        }
        let sink = reported.clone();
        device.set_device_lost_callback(move |_, reason| {
            if let Ok(mut reported) = sink.lock() {
                for waiting in std::mem::take(&mut reported.waiting) {
                    // A receiver that was dropped stopped waiting.
                    let _ = waiting.send(reason.clone());
                }
                reported.lost = Some(reason);
            }
        });
        Self {
            place,
            reported,
            watched: RefCell::default(),
            scopes: RefCell::default(),
            last_kernels: RefCell::default(),
            has_failed: Cell::new(false),
        }
    }

    pub fn check_lost(&self) -> Result<()> {
        match self.reported.lock() {
            Ok(reported) => match &reported.lost {
                Some(reason) => Err(lost(reason)),
                None => Ok(()),
            },
            Err(_) => Ok(()),
        }
    }

    /// A function for callbacks that tells whether the device is lost.
    pub fn loss_probe(&self) -> impl Fn() -> bool + Send + 'static {
        let reported = self.reported.clone();
        move || reported.lock().is_ok_and(|reported| reported.lost.is_some())
    }

    /// Whether all is known to have gone well so far.
    pub fn is_clean(&self) -> bool {
        let reported = self.reported.lock();
        let quiet = reported.is_ok_and(|reported| reported.first.is_none() && reported.lost.is_none());
        quiet && !self.has_failed.get() && self.watched.borrow().is_empty()
    }

    /// Resolves when the device is lost, with the browser's words for why.
    pub fn lost(&self) -> impl Future<Output = String> + use<> {
        let (sender, receiver) = oneshot::channel();
        if let Ok(mut reported) = self.reported.lock() {
            match &reported.lost {
                Some(reason) => {
                    let _ = sender.send(reason.clone());
                }
                None => reported.waiting.push(sender),
            }
        }
        async move {
            match receiver.await {
                Ok(reason) => reason,
                // The device was dropped without a callback.
                Err(_) => std::future::pending().await,
            }
        }
    }

    /// Opens scopes that hear of everything until `close_scopes`, in place of whoever waits next.
    pub fn open_scopes(&self, device: &wgpu::Device) -> Scopes {
        self.scopes.borrow_mut().push(false);
        let validation = device.push_error_scope(wgpu::ErrorFilter::Validation);
        Scopes { validation, memory: device.push_error_scope(wgpu::ErrorFilter::OutOfMemory) }
    }

    pub fn close_scopes(&self, Scopes { validation, memory }: Scopes) -> Outcome {
        let (memory, validation) = (Box::pin(memory.pop()), Box::pin(validation.pop()));
        let is_refused = self.scopes.borrow_mut().pop().unwrap_or_default();
        Outcome { is_refused, place: self.place, memory, validation }
    }

    /// Whose memory it is, for people.
    pub fn place(&self) -> &'static str {
        self.place
    }

    pub fn has_open_scopes(&self) -> bool {
        !self.scopes.borrow().is_empty()
    }

    /// The next wait reports what scopes tell. What is known already is not waited for.
    pub fn watch_outcome(&self, outcome: Outcome, what: &str) {
        let what = what.to_owned();
        let mut outcome: LocalBoxFuture<'static, Option<Error>> =
            Box::pin(async move { outcome.error(&what, 0).await });
        match (&mut outcome).now_or_never() {
            Some(None) => {}
            Some(known) => self.watched.borrow_mut().push(Box::pin(std::future::ready(known))),
            None => self.watched.borrow_mut().push(outcome),
        }
    }

    /// What a browser does where memory runs out: a buffer that does not work, and an error for the innermost scope or the next wait.
    pub fn refuse(&self, device: &wgpu::Device, buffer: &wgpu::BufferDescriptor<'_>) -> wgpu::Buffer {
        let scope = device.push_error_scope(wgpu::ErrorFilter::Validation);
        // WebGPU refuses a buffer without usage, with the same result.
        let broken =
            device.create_buffer(&wgpu::BufferDescriptor { usage: wgpu::BufferUsages::empty(), ..buffer.clone() });
        drop(scope.pop());
        match self.scopes.borrow_mut().last_mut() {
            Some(is_refused) => *is_refused = true,
            None => {
                if let Ok(mut reported) = self.reported.lock() {
                    reported
                        .first
                        .get_or_insert_with(|| no_room(self.place, buffer.label.unwrap_or("a buffer"), buffer.size));
                }
            }
        }
        broken
    }

    /// Runs `compile` inside an error scope. The next wait reports its error, with the shader's name.
    pub fn watch_compilation<T>(&self, device: &wgpu::Device, label: &str, compile: impl FnOnce() -> T) -> T {
        let scope = device.push_error_scope(wgpu::ErrorFilter::Validation);
        let compiled = compile();
        let outcome = scope.pop();
        let label = label.to_owned();
        self.watched.borrow_mut().push(Box::pin(async move {
            let error = outcome.await?;
            Some(compilation_failed(&label, &error.to_string()))
        }));
        compiled
    }

    /// Watches a submit, whose kernels were noted.
    pub fn watch_submit(&self, scope: wgpu::ErrorScopeGuard) {
        let outcome = scope.pop();
        let (place, kernels) = (self.place, self.last_kernel_names());
        self.watched.borrow_mut().push(Box::pin(async move {
            let error = outcome.await?;
            Some(err!(GpuValidation, "{place} refused a submit ({kernels}): {error}"))
        }));
    }

    /// Keeps the names of the last kernels, for messages of errors that arrive later.
    pub fn note_kernels(&self, names: Vec<Rc<str>>) {
        *self.last_kernels.borrow_mut() = names;
    }

    pub fn last_kernel_names(&self) -> String {
        format!("last kernels: {}", self.last_kernels.borrow().join(", "))
    }

    /// Waits for the outcome of all that is watched; the first that failed.
    pub async fn take_failed(&self) -> Option<Error> {
        let watched = std::mem::take(&mut *self.watched.borrow_mut());
        let mut failed: Option<Error> = None;
        for outcome in watched {
            let error = outcome.await;
            failed = failed.or(error);
        }
        self.has_failed.set(self.has_failed.get() || failed.is_some());
        failed
    }

    /// Something went wrong after the call that caused it had returned.
    pub fn report(&self, error: Error) {
        if let Ok(mut reported) = self.reported.lock() {
            reported.first.get_or_insert(error);
        }
    }

    /// The first uncaptured error since the last call.
    pub fn take_first(&self) -> Option<Error> {
        let first = self.reported.lock().ok().and_then(|mut reported| reported.first.take());
        self.has_failed.set(self.has_failed.get() || first.is_some());
        first
    }
}

/// The error for a shader that does not compile.
pub(super) fn compilation_failed(label: &str, message: &str) -> Error {
    err!(ShaderCompilation, "the kernel {label} did not compile: {message}")
}

fn no_room(place: &str, what: &str, needed: u64) -> Error {
    let megabytes = needed as f64 / 1e6;
    let needed = if needed == 0 { String::new() } else { format!(", which needs {megabytes:.1} MB") };
    err!(OutOfMemory, "{place} has no room for {what}{needed}")
}

fn lost(reason: &str) -> Error {
    let reason = if reason.is_empty() { "no reason given" } else { reason };
    err!(DeviceLost, "the GPU device was lost ({reason}); request a new one, or load the model again")
}

fn typed(place: &str, error: wgpu::Error) -> Error {
    let code = match &error {
        wgpu::Error::OutOfMemory { .. } => Code::OutOfMemory,
        wgpu::Error::Validation { .. } => Code::GpuValidation,
        wgpu::Error::Internal { .. } => Code::Internal,
    };
    Error::new(code, format!("{place} reported: {error}"))
}
