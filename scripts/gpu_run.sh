#!/usr/bin/env bash
# What a machine with one GPU measures, in at most 8 minutes, without gradio and without a network.
#
#   scripts/gpu_run.sh pack     where there is a network: .gpu/ gets the model, the data and the wheels to take along
#   scripts/gpu_run.sh          on the machine with the GPU, whose Python has PyTorch 2.11, transformers 5.17,
#                               sentence-transformers 6.0, accelerate, filelock
#   scripts/gpu_run.sh small    anywhere: the same with tiny models on the CPU, which shows that it works
#
# Everything is written under $OUT, or .gpu/out, as it is measured: gpu.json (the benchmark), resume.json (a run through
# the queue, stopped and resumed), logs.
set -uo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
if [ "${1:-}" = pack ]; then
  mkdir -p .gpu
  "$python" -m benchmarks.gpu_home .gpu/home ${LIGHT:+--light}
  # The queue and its settings, and what the trainer of sentence-transformers needs.
  exec "$python" -m pip download --quiet --no-deps --only-binary=:all: --dest .gpu/wheels \
    --python-version 3.12 --implementation cp --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
    pydantic==2.12.5 pydantic-core==2.41.5 annotated-types typing-inspection typing-extensions \
    datasets dill==0.4.1 multiprocess
fi
out=${OUT:-.gpu/out}
mkdir -p "$out"
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
if ls .gpu/wheels/*.whl >/dev/null 2>&1; then
  "$python" -m pip install --quiet --no-index --no-deps --no-compile --target "$site" .gpu/wheels/*.whl
  export PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}"
fi
"$python" -m pip list --format=freeze >"$out/packages.txt" 2>/dev/null
if [ -n "${LIGHT:-}" ]; then "$python" -m benchmarks.gpu_home .gpu/home --light; fi
export HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1
if [ -z "${SBERT_HOME:-}" ] && [ -d .gpu/home ]; then export SBERT_HOME="$PWD/.gpu/home"; fi
benchmark=() resume=() seconds=90
if [ "${1:-}" = small ]; then
  benchmark=(--device cpu --small --no-save) resume=(--base scratch:2x64 --steps 12) seconds=300
fi
if [ -f .gpu/prose.txt.xz ]; then # the language model first: nothing else needs a GPU as much
  "$python" -c 'import lzma, shutil; shutil.copyfileobj(lzma.open(".gpu/prose.txt.xz"), open("/tmp/prose.txt", "wb"))'
  head -n 40000 /tmp/prose.txt >/tmp/trial.txt
  "$python" -m scripts.train_raw_bert /tmp/raw "/tmp/prose.txt+stsb:train+.gpu/snli-dev.csv+.gpu/snli-test.csv" \
    --trial-data /tmp/trial.txt --seconds "${MLM_SECONDS:-130}" 2>&1 | tee "$out/mlm.log"
  tar -C /tmp/raw -cf "$out/raw-bert-mini.tar" raw-bert-mini
  cp /tmp/raw/events.jsonl "$out/mlm-events.jsonl"
fi
if [ -n "${PARTS:-}" ]; then # some parts of the benchmark alone
  for part in $PARTS; do
    timeout "${PART_SECONDS:-65}" "$python" -m benchmarks.gpu_parts "$part" --device cuda 2>>"$out/parts.log" |
      sed -u "s/^/$part: /" | tee -a "$out/rows.txt"
  done
else
  "$python" -m benchmarks gpu --json "${benchmark[@]}" >"$out/gpu.json" 2> >(tee "$out/gpu.log" >&2)
fi
status=$?
timeout "$seconds" "$python" -m scripts.resume_run "${resume[@]}" >"$out/resume.json" 2> >(tee "$out/resume.log" >&2) || status=1
cat "$out/resume.json"
exit $status
