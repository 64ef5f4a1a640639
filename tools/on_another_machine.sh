#!/bin/sh
# Run what can run without installing anything, on a machine with Python, torch, pytest and hypothesis: the quick tests,
# the numbers of `make trust` and, on a GPU, the kernels. What lacks a package is skipped. Needs no network and no git.
#
#     sh tools/on_another_machine.sh [PYTHON]
#
# Prints the counts of each part; ends with 1 if one failed.
cd "$(dirname "$0")/.." || exit 2
python=${1:-python3}
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}" OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
failed=

part() { # NAME COMMAND...: run a command; say how it ended, and show all that it printed if it failed
    name=$1
    shift
    if "$@" >"$work/out" 2>&1; then
        echo "$name: passed, $(wc -l <"$work/out") lines, the last: $(tail -n 1 "$work/out")"
    else
        cat "$work/out"
        echo "$name: FAILED"
        failed="$failed $name;"
    fi
    grep "^not installed: " "$work/out"
}

spread=
if "$python" -c "import xdist" 2>/dev/null; then
    cores=$("$python" -c "from levelhead.support.threads import usable_cores; print(usable_cores())")
    spread="-n $cores --dist loadfile --no-loadscope-reorder"
fi
uname -sm
"$python" -c "import numpy, sys, torch; print(sys.version.split()[0], numpy.__version__, torch.__version__)"
# shellcheck disable=SC2086  # several words, or none
part "quick tests" "$python" -m pytest -p tools.elsewhere -p no:cacheprovider -p no:benchmark $spread -m "not slow" -vv --tb=short
part "numbers" "$python" -m bench.trust --profile quick --only right_numbers \
    --results "$work/trust.json" --page "$work/trust.md"
if "$python" -c "import sys, torch, triton; sys.exit(not torch.cuda.is_available())" 2>/dev/null; then
    part "kernels" "$python" tests/fast/check_kernels.py
    part "augmentation" "$python" tests/fast/check_augment.py
else
    echo "kernels: not run, no GPU"
fi
[ -z "$failed" ] || { echo "failed:$failed"; exit 1; }
