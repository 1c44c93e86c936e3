// Clippy while the tests are compiled: it stands in for the compiler, for the crates of this workspace alone, as cargo foresees it
// (RUSTC_WORKSPACE_WRAPPER). `cargo clippy` would compile all dependencies a second time.

const WARNINGS_ARE_ERRORS = ['-Dwarnings'];

/**
 * What cargo compiles with it is shared: one set of macros and build scripts for the native tests and for clippy. Neither incrementally nor with names
 * for backtraces, both of which cost time from nothing (a fifth of it for the library's tests): panics name their line without them, and whoever changes
 * code runs `cargo test`, which keeps a build of its own.
 */
export function onceEnv() {
  return { CARGO_INCREMENTAL: '0', CARGO_PROFILE_DEV_DEBUG: '0', CARGO_PROFILE_DEV_CODEGEN_UNITS: '1', ...process.env };
}

/** The environment in which cargo compiles and lints natively. What compiles with it again has nothing to do. */
export function lintingEnv() {
  // The arguments as `cargo clippy` hands them on.
  const args = WARNINGS_ARE_ERRORS.map((arg) => `${arg}__CLIPPY_HACKERY__`).join('');
  return { ...onceEnv(), RUSTC_WORKSPACE_WRAPPER: 'clippy-driver', CLIPPY_ARGS: args };
}
