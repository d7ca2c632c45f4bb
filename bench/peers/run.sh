#!/bin/bash
# Installs the peers where they are missing (Debian packages, a virtual environment in build/peers-venv), builds the
# library, and measures: bench/peers/run.sh [ARGS of compare.py]. Run it on a machine that has nothing else to do.
set -euo pipefail
root=$(dirname "$(readlink -f "$0")")/../..
venv=$root/build/peers-venv
here=$PWD
cd "$root"

missing=()
for package in python3-torch python3-numpy python3-venv python3-pytest libopenblas0-openmp; do
  [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null) == installed ]] || missing+=("$package")
done
if [[ ${#missing[@]} -gt 0 ]]; then
  as_root=()
  [[ $(id -u) == 0 ]] || as_root=(sudo)
  echo "== installing from Debian: ${missing[*]}" >&2
  "${as_root[@]}" apt-get update -q > /dev/null
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" > /dev/null
fi

requirements=(tools/requirements-bench.txt tools/requirements-test.txt)
if ! cat "${requirements[@]}" | cmp -s - "$venv/installed.txt"; then
  echo "== Python packages into build/peers-venv" >&2
  /usr/bin/python3 -m venv --system-site-packages "$venv"
  "$venv/bin/python" -m pip install --quiet --no-deps --require-hashes "${requirements[@]/#/-r}"
  cat "${requirements[@]}" > "$venv/installed.txt" # last: it says that the rest is there
fi

[[ -n ${GNOMON_LIBRARY:-} ]] || ./run build release >&2
cd "$here"
exec "$venv/bin/python" "$root/bench/peers/compare.py" "$@"
