#!/usr/bin/env bash
# Tests a job's GPU memory without a GPU, for continuous integration. The first run on a branch without a baseline makes one.
#
#   GPUWATCH_GPU       the card, as in "RTX 4090"
#   GPUWATCH_COMMAND   the job, as in "python train.py --batch 16"; empty runs no job
#   GPUWATCH_TESTS     arguments of pytest, as in "tests/memory"; empty runs no tests
#   GPUWATCH_BASELINE  the baseline of the job, in the repository or an artefact [.gpuwatch/main.json]
#   GPUWATCH_BUDGET    how much more than the baseline passes [0.5%]
#   GPUWATCH_OUT       a folder for the results: comment.md, now.json [gpuwatch-results]
#
# Exit code: 0 within the budget, 1 over it or a test failed, 2 cannot tell.
set -uo pipefail

gpu=${GPUWATCH_GPU:?a card, as in RTX 4090}
baseline=${GPUWATCH_BASELINE:-.gpuwatch/main.json}
out=${GPUWATCH_OUT:-gpuwatch-results}
mkdir -p "$out"
comment=$out/comment.md
: >"$comment"
code=0

# The words of a command, as a shell reads them, but nothing in it is expanded or run.
words() {
    xargs printf '%s\0' <<<"$1"
}

if [ -n "${GPUWATCH_COMMAND:-}" ]; then
    mapfile -d '' -t job < <(words "$GPUWATCH_COMMAND")
    rm -f "$out/now.json"
    if [ -e "$baseline" ]; then
        gpuwatch fit --gpu "$gpu" --save "$out/now.json" --against "$baseline" --budget "${GPUWATCH_BUDGET:-0.5%}" \
            --markdown -- "${job[@]}" >"$comment" || code=$?
    else
        # A job that does not fit has a peak, too.
        gpuwatch fit --gpu "$gpu" --save "$out/now.json" -- "${job[@]}"
        if [ -e "$out/now.json" ]; then
            echo "### GPU memory: no baseline yet; keep \`now.json\` as \`$baseline\`" >"$comment"
        else
            code=2
            echo "### ❔ GPU memory: cannot tell; the output of this job says why" >"$comment"
        fi
    fi
    cat "$comment"
fi

if [ -n "${GPUWATCH_TESTS:-}" ]; then
    mapfile -d '' -t tests < <(words "$GPUWATCH_TESTS")
    python -m pytest --gpuwatch "$gpu" "${tests[@]}" >"$out/tests.txt" 2>&1
    failed=$?
    cat "$out/tests.txt"
    [ "$failed" = 0 ] || [ "$code" = 2 ] || code=1
    {
        [ "$failed" = 0 ] && printf '\n### ✅ GPU memory tests\n' || printf '\n### ❌ GPU memory tests\n'
        # From the table on; it has the names of the tests that failed, too.
        printf '\n```\n'
        sed -n '/^=* GPU memory, /,$p' "$out/tests.txt" | tail -n 60
        printf '```\n'
    } >>"$comment"
fi

exit "$code"
