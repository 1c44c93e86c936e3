//! Shaders as they are in the program.

pub use rillm_shader_text::shader_text;

/// The text of a WGSL file without comments and indents. Its lines keep their numbers.
#[cfg(not(all(feature = "cpu", target_arch = "wasm32")))]
#[macro_export]
macro_rules! shader {
    ($file:literal) => {
        $crate::gpu::shader_text!($file)
    };
}

/// The wasm of the CPU runs no shaders, and so has none.
#[cfg(all(feature = "cpu", target_arch = "wasm32"))]
#[macro_export]
macro_rules! shader {
    ($file:literal) => {
        ""
    };
}
