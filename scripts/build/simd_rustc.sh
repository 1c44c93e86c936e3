#!/bin/sh
# The compiler of the workspace's own crates for the wasm of the CPU (RUSTC_WORKSPACE_WRAPPER): with wasm's vectors. So the crates that it depends
# on are those of the other wasm, and compiled once. Macros are compiled for this machine, which has no such vectors.
case "$*" in
*--target\ wasm32*) exec "$@" -C target-feature=+simd128 ;;
*) exec "$@" ;;
esac
