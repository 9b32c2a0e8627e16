#!/usr/bin/env bash
# What only a GPU can show, in one call of at most 8 minutes: gpu_check.yaml, a subset of the claim at full size.
# The run, its report and what nvidia-smi says land in $OUT (default: gpu-check).
set -euo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-gpu-check}
python=${PYTHON:-python3}
mkdir -p "$out"
nvidia-smi > "$out/nvidia-smi.txt"
if ! "$python" -c 'import pydantic, torch, transformers, typer' 2> /dev/null; then
  "$python" -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[run]'
fi
timeout 460 "$python" -m harness run benchmarks/gpu_check.yaml --out "$out/run"
