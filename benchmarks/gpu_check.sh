#!/usr/bin/env bash
# The first half hour on a new GPU (docs/gpu_check.md), in commands of at most 8 minutes that continue one another:
#
#   gpu_check.sh A   are captured passes right; what can be read; exactness, ways of attending; the reference model
#   gpu_check.sh B   three times: the paper's claim at full size, Llama-3.1-8B shapes, three processes
#   gpu_check.sh C   the same with Qwen3-8B shapes
#   gpu_check.sh D   pass cost over block and batch size, energy
#
# Results gather in $GATHER (default: gpu-check), which has to stay between commands. Each command ends with a table, and packs
# all there is so far into $OUT (default: gpu-archives). $LIMIT_S: another length. Without pydantic here it is taken from the
# wheels in .whl (make gpu-carried); no network is needed. With --dry-run the same on a CPU, with tiny shapes.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
step=${1:-}
dry=${2:-}
case "$step$dry" in
  [ABCD] | [ABCD]--dry-run) ;;
  *) sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
python=${PYTHON:-python3}
gather=${GATHER:-gpu-check}
out=${OUT:-gpu-archives}
declare -A length_s=([A]=360 [B]=360 [C]=360 [D]=420)
limit_s=${LIMIT_S:-${length_s[$step]}}
deadline=$((SECONDS + limit_s)) || exit
device=cuda
[ -z "$dry" ] || device=cpu
export PYTHONPATH="$PWD/.site:$PWD${PYTHONPATH:+:$PYTHONPATH}" HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1
# cuDNN plans its attention anew for every shape, some 30 ms each: the yardstick is not to pay for that either.
export TORCH_CUDNN_SDPA_DEPRIORITIZED=1
mkdir -p "$gather" "$out" || exit
failed=0

# Pack what there is, whatever happened.
pack() {
  tar -czf "$out/gpu-check-$step.tgz" -C "$(dirname "$gather")" "$(basename "$gather")" && echo "packed $out/gpu-check-$step.tgz"
}
trap pack EXIT

# Minutes of so many seconds, to a tenth.
minutes() { echo "$(($1 / 60)).$(($1 % 60 / 6))"; }

left() {
  local seconds=$((deadline - SECONDS - ${1:-0}))
  echo $((seconds > 1 ? seconds : 1))
}

# limited SECONDS COMMAND...: interrupted when its time is up, which keeps what is finished and is no failure (124).
limited() {
  local seconds=$1 code=0
  shift
  echo "+ $*  (at most $seconds s)" >&2
  timeout --foreground -s INT -k 40 "$seconds" "$@" || code=$?
  case $code in
    0) ;;
    124 | 130) echo "the time was up: the same command goes on where this one ended" >&2 ;;
    *) failed=$code; echo "ended with exit code $code" >&2 ;;
  esac
  return $code
}

sbd() { limited "$1" "$python" -m harness "${@:2}"; }

# scenario NAME: a shipped one, or as it is dry-run.
scenario() {
  if [ -z "$dry" ]; then
    echo "scenarios/$1.yaml"
  else
    "$python" -m benchmarks.dry_scenario "$1" "$gather/$1.yaml" && echo "$gather/$1.yaml"
  fi
}

# run NAME: as much of a scenario's run as the time allows, its page, and its verdict, which may be that a claim is refuted.
run() {
  local file
  file=$(scenario "$1") || { failed=$?; return; }
  sbd "$(left 45)" run "$file" --out "$gather/$1" --no-report
  [ -e "$gather/$1/run.json" ] || return
  sbd 40 report "$gather/$1" > "$gather/$1/report.txt"
  "$python" -m harness verify "$gather/$1" > "$gather/$1/verdict.txt" 2>&1 || true
}

tables() {
  "$python" -m benchmarks.run_table "$@" | tee "$gather/$step.md"
}

if ! "$python" -c 'import pydantic' 2> /dev/null; then
  "$python" -m pip install --disable-pip-version-check -q --no-index --find-links .whl --no-deps --no-compile --no-cache-dir \
    --upgrade --target .site pydantic pydantic-core annotated-types typing-extensions typing-inspection || exit
fi
if command -v nvidia-smi > /dev/null; then nvidia-smi > "$gather/nvidia-smi.txt" 2>&1; fi

case $step in
  A)
    limited 120 "$python" -m harness.check.half_precision "$device" > "$gather/half_precision.txt"
    probed=$?
    tail -n 1 "$gather/half_precision.txt"
    if [ $probed != 0 ]; then
      cat "$gather/half_precision.txt"
      echo "captured passes are not right on this device: nothing else counts" >&2
      exit 1
    fi
    sbd 60 doctor --device "$device" --json > "$gather/doctor.json"
    sbd 200 check --minutes "$(minutes 96)" --out "$gather/check" $dry > "$gather/check.txt"
    run gpu_reference
    [ ! -e "$gather/check/attention.md" ] || cat "$gather/check/attention.md"
    tables "$gather/gpu_reference"
    ;;
  B | C)
    name=claim_llama31_8b
    [ "$step" = B ] || name=claim_qwen3_8b
    run "$name"
    tables "$gather/$name"
    ;;
  D)
    sbd 450 check --minutes "$(minutes $((limit_s > 30 ? limit_s - 30 : 0)))" --out "$gather/check" $dry > "$gather/check.txt"
    tables "$gather/check/run"
    ;;
esac
exit $failed
