// Clippy while the tests are compiled: it stands in for the compiler, for the crates of this workspace alone, as cargo foresees it
// (RUSTC_WORKSPACE_WRAPPER). `cargo clippy` would compile all dependencies a second time.

const WARNINGS_ARE_ERRORS = ['-Dwarnings'];

/** The environment in which cargo compiles and lints natively. What compiles with it again has nothing to do. */
export function lintingEnv() {
  // The arguments as `cargo clippy` hands them on.
  const args = WARNINGS_ARE_ERRORS.map((arg) => `${arg}__CLIPPY_HACKERY__`).join('');
  return { ...process.env, RUSTC_WORKSPACE_WRAPPER: 'clippy-driver', CLIPPY_ARGS: args };
}
