#!/bin/sh
# The same as `team_rustc.sh`, with relaxed vectors: dot products of bytes, and fused multiplications.
exec "$@" -C target-feature=+simd128,+relaxed-simd,+atomics,+bulk-memory
