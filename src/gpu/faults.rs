//! Errors of a device. WebGPU reports an error some time after the call that caused it, so errors are collected here and
//! returned by the next wait.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use futures_channel::oneshot;
use futures_util::future::LocalBoxFuture;

use crate::error::{Code, Error, Result};

pub(super) struct Faults {
    /// Shared with callbacks, which natively may run on another thread.
    reported: Arc<Mutex<Reported>>,
    /// Compilations and, in debug mode, submits whose outcome is not known yet.
    watched: RefCell<Vec<LocalBoxFuture<'static, Option<Error>>>>,
    /// The kernels of the last submits, named in errors.
    last_kernels: RefCell<Vec<Rc<str>>>,
    /// An error was handed out.
    has_failed: Cell<bool>,
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
    pub fn watch(device: &wgpu::Device, is_foreign: bool) -> Self {
        let reported = Arc::new(Mutex::new(Reported::default()));
        if !is_foreign {
            let sink = reported.clone();
            device.on_uncaptured_error(Arc::new(move |error| {
                if let Ok(mut reported) = sink.lock() {
                    reported.first.get_or_insert_with(|| typed(error));
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
        Self { reported, watched: RefCell::default(), last_kernels: RefCell::default(), has_failed: Cell::new(false) }
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
        let kernels = self.last_kernel_names();
        self.watched.borrow_mut().push(Box::pin(async move {
            let error = outcome.await?;
            Some(err!(GpuValidation, "the GPU refused a submit ({kernels}): {error}"))
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

fn lost(reason: &str) -> Error {
    let reason = if reason.is_empty() { "no reason given" } else { reason };
    err!(DeviceLost, "the GPU device was lost ({reason}); request a new one, or load the model again")
}

fn typed(error: wgpu::Error) -> Error {
    let code = match &error {
        wgpu::Error::OutOfMemory { .. } => Code::OutOfMemory,
        wgpu::Error::Validation { .. } => Code::GpuValidation,
        wgpu::Error::Internal { .. } => Code::Internal,
    };
    Error::new(code, format!("the GPU reported: {error}"))
}
