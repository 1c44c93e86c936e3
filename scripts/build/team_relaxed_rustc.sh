#!/bin/sh
# The same as `team_rustc.sh`, with relaxed vectors: dot products of bytes, and fused multiplications. Without LLVM's loop strength reduction, which makes
# sums of what would be offsets in a load: an instruction more for each, so a product takes a twentieth longer.
exec "$@" -C target-feature=+simd128,+relaxed-simd,+atomics,+bulk-memory -C llvm-args=-disable-lsr
