//! Callbacks that are due. Nothing is called within the call that caused it: whoever waits is not ready before it has begun to wait.
//!
//! In JavaScript each callback is a task of its own, by a MessageChannel: messages, such as that of an abort, get their turn, and no browser
//! delays it as it does timers.

#[cfg(not(target_arch = "wasm32"))]
pub use native::Callbacks;
#[cfg(target_arch = "wasm32")]
pub use web::Callbacks;

#[cfg(not(target_arch = "wasm32"))]
mod native {
    use std::sync::{Mutex, PoisonError};

    pub type Callback = Box<dyn FnOnce() + Send>;

    /// Called when the device is polled.
    #[derive(Default)]
    pub struct Callbacks(Mutex<Vec<Callback>>);

    impl Callbacks {
        pub fn push(&self, callback: Callback) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(callback);
        }

        /// Calls what is due.
        pub fn poll(&self) {
            let due = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
            due.into_iter().for_each(|callback| callback());
        }
    }
}

#[cfg(target_arch = "wasm32")]
mod web {
    use std::cell::{OnceCell, RefCell};
    use std::collections::VecDeque;
    use std::rc::Rc;

    use js_sys::{Function, Reflect, global};
    use wasm_bindgen::closure::Closure;
    use wasm_bindgen::prelude::wasm_bindgen;
    use wasm_bindgen::{JsCast, JsValue};

    pub type Callback = Box<dyn FnOnce()>;

    #[wasm_bindgen]
    extern "C" {
        type MessageChannel;

        #[wasm_bindgen(constructor)]
        fn new() -> MessageChannel;

        #[wasm_bindgen(method, getter)]
        fn port1(this: &MessageChannel) -> MessagePort;

        #[wasm_bindgen(method, getter)]
        fn port2(this: &MessageChannel) -> MessagePort;

        type MessagePort;

        #[wasm_bindgen(method, setter)]
        fn set_onmessage(this: &MessagePort, listener: Option<&Function>);

        #[wasm_bindgen(method, js_name = postMessage)]
        fn post_message(this: &MessagePort, message: &JsValue);

        #[wasm_bindgen(method)]
        fn close(this: &MessagePort);
    }

    #[derive(Default)]
    pub struct Callbacks {
        due: Rc<RefCell<VecDeque<Callback>>>,
        tasks: OnceCell<Tasks>,
    }

    /// What begins a task that calls the first of what is due.
    enum Tasks {
        /// In Node: it takes messages of a port by the thousand before a timer gets its turn, and a port that listens keeps it from ending.
        Immediate(Function),
        Message {
            own: MessagePort,
            other: MessagePort,
            _listener: Closure<dyn FnMut()>,
        },
    }

    fn call_first(due: &RefCell<VecDeque<Callback>>) {
        let callback = due.borrow_mut().pop_front();
        if let Some(callback) = callback {
            callback();
        }
    }

    impl Callbacks {
        pub fn push(&self, callback: Callback) {
            self.due.borrow_mut().push_back(callback);
            match self.tasks.get_or_init(|| Tasks::new(&self.due)) {
                Tasks::Message { own, .. } => own.post_message(&JsValue::NULL),
                Tasks::Immediate(function) => {
                    let due = self.due.clone();
                    // It lives until it is called, whatever becomes of the device. The call does not fail.
                    let _ = function.call1(&JsValue::UNDEFINED, &Closure::once_into_js(move || call_first(&due)));
                }
            }
        }

        /// The tasks call them.
        pub fn poll(&self) {}
    }

    impl Tasks {
        fn new(due: &Rc<RefCell<VecDeque<Callback>>>) -> Self {
            if let Ok(function) = Reflect::get(&global(), &"setImmediate".into()).and_then(JsCast::dyn_into) {
                return Tasks::Immediate(function);
            }
            let due = due.clone();
            let listener = Closure::<dyn FnMut()>::new(move || call_first(&due));
            let channel = MessageChannel::new();
            let (own, other) = (channel.port1(), channel.port2());
            other.set_onmessage(listener.as_ref().dyn_ref());
            Tasks::Message { own, other, _listener: listener }
        }
    }

    impl Drop for Tasks {
        fn drop(&mut self) {
            if let Tasks::Message { own, other, .. } = self {
                other.set_onmessage(None);
                own.close();
            }
        }
    }
}
