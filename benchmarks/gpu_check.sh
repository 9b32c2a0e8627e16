#!/usr/bin/env bash
# What only a GPU can show, in one call of at most 8 minutes: the claim at full size, a short form of
# scenarios/claim_llama31_8b.yaml. Results go to $OUT (default: gpu-check) as run directories with their reports.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-gpu-check}
python=${PYTHON:-python3}
mkdir -p "$out"
nvidia-smi > "$out/nvidia-smi.txt"
if ! "$python" -c 'import harness, pydantic, typer, torch, transformers' 2> /dev/null; then
  "$python" -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[run]'
fi
"$python" - "$out" << 'PY'
import sys
from pathlib import Path

import yaml

scenario = yaml.safe_load(Path("scenarios/claim_llama31_8b.yaml").read_text())
part = scenario["parts"][0]
part["batch_sizes"] = [1, 8]
part["workload"] |= {"prompts": 8, "max_new_tokens": 128}
part["repeats"], part["warmup"] = 1, 1
part["arms"] = part["arms"][:1] + part["arms"][1::3]
scenario["name"] = "gpu_check"
Path(sys.argv[1], "gpu_check.yaml").write_text(yaml.safe_dump(scenario, sort_keys=False))
PY
timeout 460 "$python" -m harness.cli run "$out/gpu_check.yaml" --out "$out/run"
