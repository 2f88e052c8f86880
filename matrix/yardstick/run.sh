#!/usr/bin/env bash
# Megatron-LM's own unit tests on the CPU host: run.sh VERSION CHECKOUT RANKS FOLDER [PYTEST ARGUMENTS]
# A FOLDER of an earlier run is gone on with. Tests without a place in CHECKOUT/tests/unit_tests are left out.
set -euo pipefail
version=$1 checkout=$(realpath "$2") ranks=$3 folder=$(realpath -m "$4")
shift 4
here=$(realpath "$(dirname "$0")")
mkdir -p "$folder"
rm -f "$folder"/at*
cd "$folder"
tests=()
for name in distributed tensor_parallel pipeline_parallel transformer models; do
    [ -d "$checkout/tests/unit_tests/$name" ] && tests+=("$checkout/tests/unit_tests/$name")
done
export ONE_BY_ONE=$folder PYTHONPATH=$here:$checkout${PYTHONPATH:+:$PYTHONPATH} OMP_NUM_THREADS=1
export WORLD_SIZE=$ranks LOCAL_WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=${MASTER_PORT:-29531}
for ((rank = 0; rank < ranks; rank++)); do
    RANK=$rank LOCAL_RANK=$rank mcore-compat matrix exec "$version" --host cpu -- python -m pytest -p one_by_one \
        -q -p no:cacheprovider -W ignore --continue-on-collection-errors --maxfail=1000000 "$@" "${tests[@]}" >"rank$rank.log" 2>&1 &
done
wait
