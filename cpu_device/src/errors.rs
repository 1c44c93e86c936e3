//! Error scopes, as WebGPU has them.

use std::sync::{Arc, Mutex, PoisonError};

#[derive(Default)]
pub struct Errors(Mutex<State>);

#[derive(Default)]
struct State {
    scopes: Vec<(wgpu::ErrorFilter, Option<wgpu::Error>)>,
    handler: Option<Arc<dyn wgpu::UncapturedErrorHandler>>,
}

impl Errors {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn set_handler(&self, handler: Arc<dyn wgpu::UncapturedErrorHandler>) {
        self.with(|state| state.handler = Some(handler));
    }

    /// Opens a scope and returns its number.
    pub fn push(&self, filter: wgpu::ErrorFilter) -> u32 {
        self.with(|state| {
            state.scopes.push((filter, None));
            state.scopes.len() as u32 - 1
        })
    }

    /// Closes the scope of a number, and those that were opened within it.
    pub fn pop(&self, number: u32) -> Option<wgpu::Error> {
        self.with(|state| {
            state.scopes.truncate(number as usize + 1);
            state.scopes.pop()?.1
        })
    }

    /// The innermost scope for such errors hears of it, or else the handler.
    pub fn report(&self, error: wgpu::Error) {
        let filter = match &error {
            wgpu::Error::OutOfMemory { .. } => wgpu::ErrorFilter::OutOfMemory,
            wgpu::Error::Validation { .. } => wgpu::ErrorFilter::Validation,
            wgpu::Error::Internal { .. } => wgpu::ErrorFilter::Internal,
        };
        let uncaptured = self.with(|state| match state.scopes.iter_mut().rev().find(|scope| scope.0 == filter) {
            Some((_, first)) => {
                first.get_or_insert(error);
                None
            }
            None => state.handler.clone().map(|handler| (handler, error)),
        });
        if let Some((handler, error)) = uncaptured {
            handler(error);
        }
    }

    pub fn report_no_room(&self, description: &str) {
        self.report(wgpu::Error::OutOfMemory { source: description.into() });
    }

    pub fn report_invalid(&self, description: String) {
        self.report(wgpu::Error::Validation { source: description.as_str().into(), description });
    }
}
