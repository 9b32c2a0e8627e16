#!/usr/bin/env bash
# What only a GPU can show, in one call of at most 8 minutes (`sbd check`); everything lands in $OUT (default: gpu-check).
# With --dry-run the same on a CPU with tiny shapes.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-gpu-check}
python=${PYTHON:-python3}
mkdir -p "$out"
command -v nvidia-smi > /dev/null && nvidia-smi > "$out/nvidia-smi.txt"
if ! "$python" -c 'import pydantic, torch, transformers, typer' 2> /dev/null; then
  "$python" -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[run]'
fi
"$python" -m harness check --out "$out" "$@"
