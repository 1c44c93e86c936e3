//! The one error type. Imports nothing of ours.
//!
//! An error carries a stable [`Code`] for programs and a message for people. A message says what was found, what was
//! wanted and, if possible, what to do.

use std::fmt;

/// A result with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

macro_rules! codes {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal,)*) => {
        /// The kind of an error, with a stable name that programs may compare (`Code::as_str`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code { $($(#[doc = $doc])* $variant,)* }

        impl Code {
            /// Every code, for documentation and tests.
            pub const ALL: &'static [Code] = &[$(Code::$variant,)*];

            /// The name that JavaScript sees in `EngineError.code`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $name,)* }
            }

            /// Its documentation, which goes to JavaScript and to docs/guide/errors.md.
            #[cfg(test)]
            pub fn meaning(self) -> &'static str {
                match self { $(Code::$variant => concat!($($doc),*).trim(),)* }
            }
        }
    };
}

codes! {
    /// There is no WebGPU in this browser, or it is switched off.
    WebgpuUnavailable = "webgpu_unavailable",
    /// WebGPU is there, but it offers no adapter.
    AdapterUnavailable = "adapter_unavailable",
    /// The adapter's limits are too small for the request.
    AdapterLimits = "adapter_limits",
    /// The GPU device was lost and does not come back (`maxRecoveries`, for an engine); everything in flight is rejected.
    DeviceLost = "device_lost",
    /// The GPU or the heap has no room for an allocation.
    OutOfMemory = "out_of_memory",
    /// A buffer or tensor of one device was used on another.
    WrongDevice = "wrong_device",
    /// A slice or an index is out of range.
    OutOfRange = "out_of_range",
    /// A shader did not compile.
    ShaderCompilation = "shader_compilation",
    /// WebGPU refused a command.
    GpuValidation = "gpu_validation",
    /// Shapes of tensors don't fit each other or the operation.
    ShapeMismatch = "shape_mismatch",
    /// An element type that the operation does not support.
    DtypeMismatch = "dtype_mismatch",
    /// The file does not begin like a GGUF file.
    NotGguf = "not_gguf",
    /// A GGUF version that is not supported.
    UnsupportedGgufVersion = "unsupported_gguf_version",
    /// The file is shorter than its header says.
    Truncated = "truncated",
    /// The file contradicts itself or its format.
    InvalidFile = "invalid_file",
    /// An architecture that is not supported.
    UnsupportedArchitecture = "unsupported_architecture",
    /// A tensor type that is not supported.
    UnsupportedTensorType = "unsupported_tensor_type",
    /// A tensor that the architecture needs is not in the file.
    MissingTensor = "missing_tensor",
    /// A metadata key that the architecture needs is not in the file, or has another type.
    InvalidMetadata = "invalid_metadata",
    /// The model's tokenizer is of an unsupported kind, or is broken.
    UnsupportedTokenizer = "unsupported_tokenizer",
    /// The draft model has other tokens than the model.
    VocabularyMismatch = "vocabulary_mismatch",
    /// The chat template does not compile or failed while rendering.
    ChatTemplate = "chat_template",
    /// The request could not be sent, or its connection broke.
    Network = "network",
    /// The server answered with an HTTP error status.
    Http = "http",
    /// The server requires a right that the caller lacks: a login, a token, accepted conditions.
    AccessDenied = "access_denied",
    /// There is no such file, repository or revision.
    NotFound = "not_found",
    /// A file has another SHA-256 than it should: it was damaged on its way, or replaced.
    IntegrityMismatch = "integrity_mismatch",
    /// Files can't be kept in the browser: it has no place for them, or no room.
    CacheUnavailable = "cache_unavailable",
    /// A tab works with files that were to be deleted.
    CacheInUse = "cache_in_use",
    /// The server does not support byte ranges.
    RangeNotSupported = "range_not_supported",
    /// Reading a file or Blob failed.
    Read = "read",
    /// The caller aborted.
    Aborted = "aborted",
    /// An adapter (LoRA) is of another model: it names matrices that this one lacks, or has other shapes.
    AdapterMismatch = "adapter_mismatch",
    /// An adapter is of a kind that is not supported, or adds to what no adapter can be added to here.
    UnsupportedAdapter = "unsupported_adapter",
    /// A request or a call names an adapter that is not loaded.
    UnknownAdapter = "unknown_adapter",
    /// A saved session is of another model, of the same one loaded with other options, or of adapters that are not loaded.
    SessionMismatch = "session_mismatch",
    /// A checkpoint of a training is of other data, settings or another model.
    CheckpointMismatch = "checkpoint_mismatch",
    /// A field of a request is missing, unknown or out of its range.
    InvalidRequest = "invalid_request",
    /// The prompt does not fit the context.
    ContextLengthExceeded = "context_length_exceeded",
    /// Logits or weights hold NaN or infinity where a finite number is needed.
    NumericalError = "numerical_error",
    /// A logits processor threw (`cause` is what it threw), or did not return logits.
    LogitsProcessor = "logits_processor",
    /// The WebAssembly file could not be fetched or compiled.
    WasmUnavailable = "wasm_unavailable",
    /// The worker script did not start: not found, or forbidden by a content security policy. Only JavaScript can tell.
    WorkerUnavailable = "worker_unavailable",
    /// The worker that ran the engine is gone and does not come back (`maxRecoveries`): the page or the browser ended it. Load the engine again. Only
    /// JavaScript can tell.
    WorkerLost = "worker_lost",
    /// The object was disposed of.
    Disposed = "disposed",
    /// A fault of this library.
    Internal = "internal",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error: a stable code, and a message for people that says what was found and what was wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    code: Code,
    message: String,
}

impl Error {
    /// An error of `code`; `err!` and `bail!` format the message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The code, for programs.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The message, for people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The same error with the current action before its message: `loading blk.0.attn_q.weight: …`.
    pub fn context(mut self, doing: impl fmt::Display) -> Self {
        self.message = format!("{doing}: {}", self.message);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for Error {}

/// Returns early with an [`Error`] of a code and a formatted message.
#[macro_export]
macro_rules! bail {
    ($code:ident, $($arg:tt)*) => {
        return Err($crate::error::Error::new($crate::error::Code::$code, format!($($arg)*)))
    };
}

/// An [`Error`] of a code and a formatted message.
#[macro_export]
macro_rules! err {
    ($code:ident, $($arg:tt)*) => {
        $crate::error::Error::new($crate::error::Code::$code, format!($($arg)*))
    };
}
