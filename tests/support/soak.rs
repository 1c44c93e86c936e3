//! How much runs: `npm test` has minutes, and `npm run soak` hours.

/// Whether to run all that there is: every combination in place of every pair, more text, and what an earlier run of the same kernels found.
pub fn is_soak() -> bool {
    std::env::var_os("RILLM_SOAK").is_some()
}
