#!/bin/sh
# A redis-server for the tests of workers on several hosts: one on the PATH, else Debian's package, else none.
set -eu
command -v redis-server >/dev/null 2>&1 && exit 0
if command -v apt-get >/dev/null 2>&1; then
    sudo=""
    [ "$(id -u)" -eq 0 ] || sudo="sudo"
    # The tests start servers of their own; with RUNLEVEL=1 the package starts none.
    if $sudo apt-get update -qq && $sudo env RUNLEVEL=1 apt-get install -y -qq --no-install-recommends redis-server >/dev/null; then
        exit 0
    fi
fi
echo "no redis-server: the tests of workers on several hosts will be skipped" >&2
