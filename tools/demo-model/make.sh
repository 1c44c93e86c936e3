#!/bin/sh
# Makes the demo model from nothing: tokenizer, data, training in two stages, GGUF files, scores. Wants one CUDA GPU,
# 16 CPU cores and python3 with torch, transformers, tokenizers, jinja2, numpy and matplotlib (the package gguf, where
# it is installed, checks the quantisers).
#   tools/demo-model/make.sh [WORK] [OUT] [stage: 1, 2, scores]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=${1:-/tmp/rillm-demo-model}
out=${2:-$here/../../models/demo}
stage=${3:-all}
export PYTHONUNBUFFERED=1
mkdir -p "$work" "$out"
# Data is made while the model trains on what is there; shard i is the same however many processes make it.
shards=
trap '[ -z "$shards" ] || kill $shards 2>/dev/null || true' EXIT
make_shards() {
    python3 "$here/data.py" shards --out "$work" --first "$1" --count "$2" --processes 14 &
    shards=$!
}
if [ "$stage" = all ] || [ "$stage" = 1 ]; then
    python3 "$here/data.py" tokenizer --out "$work"
    make_shards 0 400
    python3 "$here/train.py" --work "$work" --shards 400 --steps 9878
    kill $shards 2>/dev/null || true
fi
if [ "$stage" = all ] || [ "$stage" = 2 ]; then
    make_shards 400 200
    python3 "$here/train.py" --work "$work" --continue --first-shard 400 --shards 200 --steps 2900 --rate 0.35 --decay 0.9
    kill $shards 2>/dev/null || true
fi
shards=
cp "$work/loss.png" "$work/training.json" "$out/"
python3 "$here/export.py" --work "$work" --out "$out"
python3 "$here/eval.py" scores --work "$work" --out "$out"
python3 "$here/eval.py" prompts --work "$work" --out "$out"
