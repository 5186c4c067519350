#!/bin/sh
# A Chromium for the browser tests: one on the PATH, else Debian's package, else Playwright's own.
set -eu
for name in chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null 2>&1 && exit 0
done
[ -d "/Applications/Google Chrome.app" ] && exit 0
if command -v apt-get >/dev/null 2>&1; then
    sudo=""
    [ "$(id -u)" -eq 0 ] || sudo="sudo"
    if $sudo apt-get update -qq && $sudo apt-get install -y -qq chromium fonts-noto-color-emoji >/dev/null; then
        exit 0
    fi
fi
.venv/bin/python -m playwright install chromium
