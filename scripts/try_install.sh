#!/bin/sh
# The README's commands as a stranger types them: sh scripts/try_install.sh [TARGET]
#
# In a fresh clone, with the system's own Python, an empty home and no environment: `make app`, then `make TARGET` if there
# is one (`test`, or `setup`, which installs what `test` needs), then the same without make. Prints what the app answers.
# Needs a network and 10 GB of disk.
#
# On a bare Debian 12, as root and with debootstrap:
#   debootstrap --include=ca-certificates,curl,git,make,python3-venv bookworm /tmp/debian
#   git clone . /tmp/debian/root/clone && chroot /tmp/debian sh /root/clone/scripts/try_install.sh setup
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
empty=$(mktemp -d)
server=
trap 'stop; rm -rf "$empty"' EXIT
git clone --quiet "$root" "$empty/sbert-lab"
cd "$empty/sbert-lab"
mkdir "$empty/home"
# Neither settings of this shell nor a Python of pyenv or conda: what the system's packages bring, and the network's settings.
# It replaces the shell that calls it, so that the number of a job is that of the command.
alone() {
    exec env -i HOME="$empty/home" PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin SBERT_PORT="$port" \
        ${PIP_EXTRA_INDEX_URL:+PIP_EXTRA_INDEX_URL="$PIP_EXTRA_INDEX_URL"} ${PIP_INDEX_URL:+PIP_INDEX_URL="$PIP_INDEX_URL"} \
        ${HTTPS_PROXY:+HTTPS_PROXY="$HTTPS_PROXY"} "$@"
}
# setsid makes a process group, so that the app ends with the make that started it.
stop() {
    test -z "$server" || kill -- "-$server" || true
    wait || true
    server=
}
answers() {
    for _ in $(seq 1800); do
        if curl --silent --fail "http://127.0.0.1:$port/health"; then
            echo
            curl --silent --fail "http://127.0.0.1:$port/" | grep --count "SBERT Lab"
            return
        fi
        kill -0 "$server" 2>/dev/null || break
        sleep 1
    done
    echo "no answer on port $port"
    return 1
}

echo "== make app"
port=7871
alone setsid make app &
server=$!
answers
stop

if [ -n "${1:-}" ]; then
    echo "== make $1"
    (alone make "$1")
fi

echo "== without make"
port=7872
rm -rf .venv
(alone python3 -m venv .venv)
(alone .venv/bin/pip install --quiet --constraint requirements.lock ".[app]")
alone setsid .venv/bin/sbert-lab serve &
server=$!
answers
stop
echo "the README's commands work"
