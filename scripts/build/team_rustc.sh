#!/bin/sh
# The compiler of the workspace's own crates for the wasm of the CPU's threads (RUSTC_WORKSPACE_WRAPPER): with wasm's vectors and atomics. The
# library comes without atomics, and gets them when all is optimised together.
exec "$@" -C target-feature=+simd128,+atomics,+bulk-memory
