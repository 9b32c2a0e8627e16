#!/usr/bin/env bash
# The first half hour on a new GPU (docs/gpu_check.md), in commands of at most 8 minutes that continue one another:
#
#   gpu_check.sh A   what can be read; are captured passes right; exactness, ways of attending; the reference model
#   gpu_check.sh B   three times: the paper's claim at full size, Llama-3.1-8B shapes, three processes; long decodes
#   gpu_check.sh C   the same with Qwen3-8B shapes
#   gpu_check.sh D   pass cost over block and batch size, energy
#   gpu_check.sh N   exact bytes of three passes, by ncu; without it what is modelled, and times
#
# Results gather in $GATHER (default: gpu-check): runs, calibrations, compilers' caches. Each command ends with a table, and packs
# all there is so far into $OUT (default: gpu-archives). The next one goes on from $GATHER, or from what was packed, unpacked at
# the same place. $LIMIT_S: another length. Without pydantic here it is taken from the wheels in .whl (make gpu-carried); no
# network is needed. With --dry-run the same on a CPU, with tiny shapes.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
step=${1:-}
dry=${2:-}
case "$step$dry" in
  [ABCDN] | [ABCDN]--dry-run) ;;
  *) sed -n '2,15s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
python=${PYTHON:-python3}
gather=${GATHER:-gpu-check}
out=${OUT:-gpu-archives}
declare -A length_s=([A]=360 [B]=360 [C]=360 [D]=420 [N]=150)
limit_s=${LIMIT_S:-${length_s[$step]}}
deadline=$((SECONDS + limit_s)) || exit
device=cuda
[ -z "$dry" ] || device=cpu
export PYTHONPATH="$PWD/.site:$PWD${PYTHONPATH:+:$PYTHONPATH}" HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1
# cuDNN plans its attention anew for every shape, some 30 ms each: the yardstick is not to pay for that either.
export TORCH_CUDNN_SDPA_DEPRIORITIZED=1
mkdir -p "$gather" "$out" && gather=$(cd "$gather" && pwd) || exit
# Calibrations, and what compilers made, go from one command to the next. Triton's cache holds absolute paths.
export XDG_CACHE_HOME="$gather/cache" TRITON_CACHE_DIR="$gather/cache/triton" TORCHINDUCTOR_CACHE_DIR="$gather/cache/inductor"
failed=0
exec 3>&2  # what this script says, wherever a command's own words go

# put OPTION...: everything but what is made again from the rest (pages), or is read by people alone (Triton's stages).
put() {
  tar -c --exclude='report.html' --exclude='report.json' --exclude='*.ttir' --exclude='*.ttgir' --exclude='*.llir' \
    --exclude='*.ptx' --exclude='*.source' "$@" -C "$(dirname "$gather")" "$(basename "$gather")"
}

# Pack what there is, whatever happened. An archive has to travel, beside the checkout: 16 MiB. It is unpacked where it is used.
pack() {
  local archive="$out/gpu-check-$step.tgz" mib=${MOST_MIB:-16}
  put -z -f "$archive" || return
  if [ "$(stat -c %s "$archive")" -gt $((mib << 20)) ]; then
    echo "$archive leaves out the compilers' caches ($(du -sh "$gather/cache" | cut -f 1)): with them it is too large to travel" >&2
    put -z --exclude=cache/triton --exclude=cache/inductor -f "$archive" || return
  fi
  echo "packed $archive, $(($(stat -c %s "$archive") >> 10)) KiB"
}
trap pack EXIT

# Minutes of so many seconds, to a tenth.
minutes() { echo "$(($1 / 60)).$(($1 % 60 / 6))"; }

# Seconds until the deadline, less so many.
left() { echo $((deadline - SECONDS - ${1:-0})); }

# limited SECONDS COMMAND...: interrupted when its time is up, which keeps what is finished and is no failure (124).
limited() {
  local seconds=$(($1 > 1 ? $1 : 1)) code=0  # 0 would be no limit
  shift
  echo "+ $*  (at most $seconds s)" >&3
  timeout --foreground -s INT -k 40 "$seconds" "$@" || code=$?
  case $code in
    0) ;;
    124 | 130) echo "the time was up: the same command goes on where this one ended" >&3 ;;
    *) failed=$code; echo "ended with exit code $code" >&3 ;;
  esac
  return $code
}

sbd() { limited "$1" "$python" -m harness "${@:2}"; }

# scenario NAME OPTION...: a shipped one; as it is dry-run, or one part of it.
scenario() {
  local options=("${@:2}")
  [ -z "$dry" ] || options+=("$dry")
  if [ ${#options[@]} = 0 ]; then
    echo "scenarios/$1.yaml"
  else
    "$python" -m benchmarks.check_scenario "$1" "$gather/$1.yaml" "${options[@]}" && echo "$gather/$1.yaml"
  fi
}

# run FOLDER NAME OPTION...: as much of a scenario's run as the time allows, its page, and its verdict, which may be that a claim
# is refuted.
run() {
  local file folder="$gather/$1"
  file=$(scenario "${@:2}") || { failed=$?; return; }
  sbd "$(left 45)" run "$file" --out "$folder" --no-report
  [ -e "$folder/run.json" ] || return
  sbd 40 report "$folder" > "$folder/report.txt"
  "$python" -m harness verify "$folder" > "$folder/verdict.txt" 2>&1 || true
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
    sbd 60 doctor --device "$device" --json > "$gather/doctor.json"
    limited $((limit_s / 3)) "$python" -m harness.check.half_precision "$device" > "$gather/half_precision.txt" 2>&1
    probed=$?
    cat "$gather/half_precision.txt"
    if [ $probed = 0 ]; then
      sbd $((limit_s * 5 / 9)) check --minutes "$(minutes 96)" --out "$gather/check" $dry > "$gather/check.txt"
      run gpu_reference gpu_reference
      [ ! -e "$gather/check/attention.md" ] || cat "$gather/check/attention.md"
      tables "$gather/gpu_reference"
    else
      echo "captured passes are not right on this device: what is not captured is measured, nothing else counts" >&2
      failed=1
      limited 60 "$python" -m benchmarks.attention_table "$device" | tee "$gather/attention.md"
      run gpu_identity gpu_reference --part identity
      tables "$gather/gpu_identity"
    fi
    ;;
  B | C)
    name=claim_llama31_8b
    [ "$step" = B ] || name=claim_qwen3_8b
    run "$name" "$name"
    tables "$gather/$name"
    ;;
  D)
    sbd 450 check --minutes "$(minutes $((limit_s > 30 ? limit_s - 30 : 0)))" --out "$gather/check" $dry > "$gather/check.txt"
    tables "$gather/check/run"
    ;;
  N)
    limited "$(left)" "$python" -m benchmarks.graph_bytes --device "$device" --out "$gather/graph_bytes" > "$gather/N.md"
    cat "$gather/N.md"
    ;;
esac
exit $failed
