#!/bin/bash
# Everything that is measured on a GPU, most important first, into one folder. Each step has a limit of its own and can hang, crash or
# lack what it takes without touching the others; what did not run is listed with the reason.
#
# usage: bench/gpu.sh [-t SECONDS] [-l STEP=SECONDS]... BINARIES RESULTS [STEP]...
#   -t         for everything (default 1500): a step gets what is left of it, and is not begun with less than 20 s
#   -l         another limit for one step
#   BINARIES   a folder with gnomon, gnomon_test_cuda, gnomon_test_engine, libgnomon-cuda.so and libgnomon.so: a build folder, or copies
#              of them (gnomon_cuda_resident too, for the step that wants it). What `gnomon kernels --precompile` wrote into BINARIES/kernels is used.
#   STEP       only these, in this order: `bench/gpu.sh -h` lists them
# COMMIT in the environment names the commit where there is no repository to ask.
# Needs nothing installed but NVIDIA's libraries; the steps with PyTorch take the python3 (or $PYTHON) that has it, and the repository
# that this file lies in. Exit code: 0 when all steps that were asked for ran and passed.
set -uo pipefail
root=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
python=${PYTHON:-python3}

steps=(info tests bench split memcheck portable dropin peers racecheck shape14-f16 first-calls synccheck shape14-f32)
declare -A limits=([info]=30 [tests]=420 [bench]=260 [split]=150 [memcheck]=150 [portable]=150 [dropin]=120 [peers]=420 [racecheck]=240
                   [shape14-f16]=150 [first-calls]=120 [synccheck]=90 [shape14-f32]=150)
declare -A about=(
  [info]="device, driver, libraries"
  [tests]="the GPU tests, in eight shards side by side"
  [bench]="gnomon bench over the suite"
  [split]="the resident kernel's split form: its tests, then all forms' times on shapes 1 to 9"
  [memcheck]="compute-sanitizer's memcheck over some tests"
  [portable]="tests with kernels for compute_80, translated by the driver (GNOMON_CUDA_ARCH)"
  [dropin]="the drop-in's tests on CUDA tensors"
  [peers]="python -m gnomon.bench with its peers"
  [racecheck]="compute-sanitizer's racecheck"
  [shape14-f16]="shape 14 in fp16, in place, in the memory of a 12 GB card"
  [first-calls]="what a first call costs, shapes 1 to 13: nothing kept, kernels kept, plans kept"
  [synccheck]="compute-sanitizer's synccheck"
  [shape14-f32]="shape 14 in fp32, in place, in as much more memory as its tensor is larger"
)
shards=8
# Each kernel of ours, in few forms, and a whole call in each path: the sanitizers make a kernel ten to a hundred times slower.
some_tests='Stacks/CudaReducedPrecision.*:Stacks/CudaResident.*:CudaBackendTest.AnInputOutside*:CudaBackendTest.PlainPath*'
some_tests+=':Rows.*:Norm.*:Masks/AttentionMask.*:MaskKernel.*:Judge.*:ActivationKernel.*:PlainOpsKernel.*:Resident*.SuiteShape*:CudaGuard.OneSlice*'
some_tests+=':*CudaGuardWays.UsualAndFar*/3:*CudaGuardWays.UsualAndFar*/24' # the fp32 answer behind the resident kernel
portable_tests='CudaBackendTest.*:Stacks/*:Rows.*:Norm.*:Masks/*:AttentionKernel.*:MaskKernel.*:Judge.*:ActivationKernel.*:PlainOpsKernel.*'
portable_tests+=':*CudaGuard*:ResidentPortable.*'
# Two tests of the resident form have more kernels than this step has time to translate.
portable_tests+=':-ResidentPortable.RandomStacks:ResidentPortable.RingsOf*:CudaBackendTest.BatchesAtTheLimits*:CudaBackendTest.AMillionTokens*'

lacks() { # says why a step did not run
  echo "not run: $1"
  exit 77
}

need_device() { # tests without one are skipped, and would pass
  "$bin/gnomon" info --json | grep -q '"cuda:0"' || lacks "gnomon info shows no CUDA device"
}

gpu_tests() { # FILTER [TOOL...]: in shards side by side, for most of their time is the host's
  local status=0 pids=() i filter=$1
  shift
  for ((i = 0; i < shards; ++i)); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i "$@" "$bin/gnomon_test_cuda" --gtest_brief=1 --gtest_filter="$filter" \
      > "$results/$name-shard$i.txt" 2>&1 &
    pids+=($!)
  done
  for ((i = 0; i < shards; ++i)); do
    wait "${pids[i]}" || { echo "shard $i: exit $?"; status=1; }
    grep -E 'FAILED|PASSED|SKIPPED|rror|SUMMARY' "$results/$name-shard$i.txt" | tail -5
  done
  return "$status"
}

sanitizer() { # TOOL
  local tool
  for tool in "$(command -v compute-sanitizer)" "${CUDA_HOME:-/usr/local/cuda}"/{bin,compute-sanitizer}/compute-sanitizer; do
    [[ -x $tool ]] && break
  done
  [[ -x $tool ]] || lacks "compute-sanitizer is not installed"
  need_device
  local options=(--tool "$1" --error-exitcode 1 --print-limit 5)
  # Gnomon looks at every call's result itself, and asks for a kernel's parameters until there are no more.
  [[ $1 != memcheck ]] || options+=(--report-api-errors no)
  export GNOMON_TEST_WITHOUT_CONDITIONS=1 # the tools do not see what memory there is when a body under a condition runs
  local tests=$some_tests
  # It watches shared memory, which these have in the library's products alone, and takes minutes for.
  [[ $1 != racecheck ]] || tests+=':-Stacks/CudaReducedPrecision.*:CudaBackendTest.*'
  gpu_tests "$tests" "$tool" "${options[@]}"
}

need_torch() {
  "$python" -c 'import torch; assert torch.cuda.is_available()' 2> /dev/null || lacks "$python has no PyTorch that finds a GPU"
  export PYTHONPATH=$root/python GNOMON_LIBRARY=$bin/libgnomon.so
}

engine_tests() {
  [[ ! -x $bin/gnomon_test_engine ]] || "$bin/gnomon_test_engine" --gtest_brief=1 --gtest_filter='DeviceCalls.*'
}

run_step() {
  case $name in
    info) nvidia-smi -L | sed 's/ (UUID.*//' > "$results/device.txt"
          echo "commit $commit" >> "$results/device.txt"
          cat "$results/device.txt"
          "$bin/gnomon" info --json ;;
    tests) need_device
           # Device memory is not flat where another shard takes some.
           gpu_tests '-Kernels/*:*MemoryStaysFlat*' && "$bin/gnomon_test_cuda" --gtest_filter='*MemoryStaysFlat*' && engine_tests ;;
    bench) "$bin/gnomon" bench --device cuda:0 --budget $((limit - 60 > 30 ? limit - 60 : 30)) --json "$results/bench.json" \
             --note "commit=$commit" ;;
    split) need_device
           [[ -x $bin/gnomon_cuda_resident ]] || lacks "no gnomon_cuda_resident in $bin"
           "$bin/gnomon_test_cuda" --gtest_filter='ResidentSplit.*' && "$bin/gnomon_cuda_resident" ;;
    memcheck | racecheck | synccheck) sanitizer "$name" ;;
    portable) need_device
              GNOMON_CUDA_ARCH=compute_80 gpu_tests "$portable_tests" ;;
    dropin) need_torch
            "$python" -c 'import pytest' 2> /dev/null || lacks "$python has no pytest"
            "$python" -m pytest -q -p no:cacheprovider "$root/tests/python/dropin/test_cuda.py" ;;
    peers) need_torch
           "$python" -m gnomon.bench --device cuda --budget $((limit - 60 > 30 ? limit - 60 : 30)) --json "$results/dropin.json" ;;
    shape14-f16 | shape14-f32) need_torch
                               "$python" "$root/bench/shape14.py" --dtype "${name#shape14-}" --json "$results/$name.json" ;;
    first-calls) "$bin/gnomon" bench --device cuda:0 --first-calls --only 1,2,3,4,5,6,7,8,9,10,11,12,13 --json "$results/first-calls.json" \
                   --note "commit=$commit" ;;
    *) echo "no step '$name'"; return 2 ;;
  esac
}

if [[ ${1:-} == --run ]]; then # one step, by ourselves under `timeout`
  name=$2 limit=$3
  run_step
  exit
fi

seconds=1500
while getopts t:l:h option; do
  case $option in
    t) seconds=$OPTARG ;;
    l) [[ $OPTARG =~ ^([a-z0-9-]+)=([0-9]+)$ && -n ${limits[${BASH_REMATCH[1]}]:-} ]] || { echo "-l $OPTARG: expected STEP=SECONDS" >&2; exit 2; }
       limits[${BASH_REMATCH[1]}]=${BASH_REMATCH[2]} ;;
    h) sed -n '2,/^set /p' "$0" | sed '$d; s/^# \{0,1\}//'
       for name in "${steps[@]}"; do printf '  %-12s %4s s  %s\n' "$name" "${limits[$name]}" "${about[$name]}"; done
       exit 0 ;;
    *) exit 2 ;;
  esac
done
shift $((OPTIND - 1))
bin=$(readlink -f "${1:?BINARIES: a folder with gnomon, gnomon_test_cuda, libgnomon-cuda.so (bench/gpu.sh -h)}")
results=${2:?RESULTS: the folder to write}
shift 2
[[ $# == 0 ]] || steps=("$@")
for name in "${steps[@]}"; do
  [[ -n ${limits[$name]:-} ]] || { echo "no step '$name'; there are ${!limits[*]}" >&2; exit 2; }
done
mkdir -p "$results"
results=$(readlink -f "$results")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
commit=${COMMIT:-$(git -C "$root" rev-parse --short=12 HEAD 2> /dev/null || echo unknown)}
# Kept from step to step, and not the user's own.
export GNOMON_KERNEL_CACHE=${GNOMON_KERNEL_CACHE:-$work/kernels} GNOMON_PLAN_DIR=$work/plans
if [[ -d $bin/kernels ]]; then
  mkdir -p "$GNOMON_KERNEL_CACHE"
  cp -n "$bin"/kernels/*.kernel "$GNOMON_KERNEL_CACHE/"
fi
export bin results work commit

failed=0
note() { # STEP VERDICT: one line of the summary, at once, so that it survives whoever ends us
  printf '== %-12s %s\n' "$1" "$2" | tee -a "$results/summary.txt"
}
for name in "${steps[@]}"; do
  left=$((seconds - SECONDS)) limit=${limits[$name]}
  if ((left < limit)); then limit=$left; fi
  if ((left < 20 && limit < ${limits[$name]})); then
    note "$name" "not run: $((left > 0 ? left : 0)) of $seconds s are left"
    failed=1
    continue
  fi
  start=$SECONDS
  timeout --kill-after=5 "$limit" bash "$0" --run "$name" "$limit" > "$results/$name.txt" 2>&1 < /dev/null &
  group=$! # `timeout` leads a group of its own
  wait "$group"
  status=$?
  kill -KILL -- "-$group" 2> /dev/null # what it started and does not obey
  took="$((SECONDS - start)) s"
  case $status in
    0) note "$name" "passed, $took" ;;
    77) note "$name" "$(tail -1 "$results/$name.txt")" ;;
    124 | 137) note "$name" "ended by its limit of $limit s" ;;
    *) note "$name" "FAILED (exit $status), $took" ;;
  esac
  [[ $status == 0 ]] || { failed=1; tail -8 "$results/$name.txt"; }
done
exit "$failed"
