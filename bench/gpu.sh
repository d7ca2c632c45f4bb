#!/bin/bash
# Everything that is measured on a GPU, into one folder: tests, compute-sanitizer over some of them, the suite by `gnomon bench`, and all
# peers by `python -m gnomon.bench`.
# usage: bench/gpu.sh BUILD RESULTS [SECONDS_FOR_GNOMON_BENCH]
set -uo pipefail
build=$(readlink -f "${1:?BUILD: a build folder with gnomon, gnomon_test_cuda and libgnomon-cuda.so}")
results=${2:?RESULTS: the folder to write}
budget=${3:-240}
mkdir -p "$results"
results=$(readlink -f "$results")
root=$(dirname "$(readlink -f "$0")")/..
commit=$(git -C "$root" rev-parse --short=12 HEAD 2> /dev/null || echo unknown)
failed=0

step() { # NAME COMMAND...: its output goes to NAME.txt, its last lines to the screen
  local name=$1 start=$SECONDS status=0
  shift
  "$@" > "$results/$name.txt" 2>&1 || status=$?
  printf '== %-12s exit %d, %d s\n' "$name" "$status" $((SECONDS - start))
  tail -4 "$results/$name.txt"
  [[ $status == 0 ]] || failed=1
}

tests() { # side by side: most of their time is the host's
  local shards=8 status=0 pids=() pid i
  for ((i = 0; i < shards; ++i)); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i "$build/gnomon_test_cuda" --gtest_brief=1 --gtest_filter=-Kernels/* &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || status=1; done
  return "$status"
}

sanitizer() { # TOOL
  compute-sanitizer --tool "$1" --error-exitcode 1 --print-limit 5 "$build/gnomon_test_cuda" --gtest_brief=1 \
    --gtest_filter='CudaBackendTest.StackInReduced*:CudaBackendTest.AnInputOutside*:Rows.*:Norm.*:Masks/AttentionMask.*'
}

nvidia-smi -L | sed 's/ (UUID.*//' | tee "$results/device.txt"
echo "commit $commit" | tee -a "$results/device.txt"
step info "$build/gnomon" info --json
step tests tests
if command -v compute-sanitizer > /dev/null; then
  step memcheck sanitizer memcheck
  step racecheck sanitizer racecheck
else
  echo "== compute-sanitizer is not installed: memcheck and racecheck were not run" | tee "$results/memcheck.txt"
  failed=1
fi
step bench "$build/gnomon" bench --device cuda:0 --budget "$budget" --json "$results/bench.json" --note "commit=$commit"
if python3 -c 'import gnomon.bench' 2> /dev/null; then
  step peers python3 -m gnomon.bench --device cuda --json "$results/peers.json"
else
  echo "== the Python package gnomon is not installed: the peers were not run" | tee "$results/peers.txt"
  failed=1
fi
exit "$failed"
