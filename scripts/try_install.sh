#!/bin/sh
# The README's commands as a stranger types them: sh scripts/try_install.sh [test]
#
# In a fresh clone, with the system's own Python, an empty home and no environment: `make app`, the same without make, and
# with the argument `test` also `make test`. Prints what answers. Needs a network, 10 GB of disk, and half an hour for test.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
empty=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$empty"' EXIT
git clone --quiet "$root" "$empty/sbert-lab"
cd "$empty/sbert-lab"
# Neither settings of this shell nor a Python of pyenv or conda: what Debian's packages bring, and the proxies.
alone() {
    env -i HOME="$empty/home" PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin SBERT_PORT="$port" \
        ${PIP_EXTRA_INDEX_URL:+PIP_EXTRA_INDEX_URL="$PIP_EXTRA_INDEX_URL"} ${PIP_INDEX_URL:+PIP_INDEX_URL="$PIP_INDEX_URL"} \
        ${HTTPS_PROXY:+HTTPS_PROXY="$HTTPS_PROXY"} "$@"
}
answers() {
    for _ in $(seq 1200); do
        if curl --silent --fail "http://127.0.0.1:$port/health"; then
            echo && return 0
        fi
        sleep 1
    done
    echo "no answer on port $port" && return 1
}
mkdir "$empty/home"
port=7871
alone make app &
answers
pkill -f "$empty/sbert-lab/.venv" || kill $!
wait || true

port=7872
rm -rf .venv
alone python3 -m venv .venv
alone .venv/bin/pip install --quiet --constraint requirements.lock ".[app]"
alone .venv/bin/sbert-lab serve &
answers
pkill -f "$empty/sbert-lab/.venv" || kill $!
wait || true

if [ "${1:-}" = test ]; then
    rm -rf .venv
    alone make test PYTHON=python3
fi
echo "the README's commands work"
