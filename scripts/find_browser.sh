#!/bin/sh
# A Chromium for the browser tests: Debian's headless one, which draws a page in two thirds of the time; else one on the
# PATH, else Debian's whole one, else Playwright's own.
set -eu
install() {
    command -v apt-get >/dev/null 2>&1 || return 1
    sudo=""
    [ "$(id -u)" -eq 0 ] || sudo="sudo"
    # Without what is recommended beside a browser, a hundred packages from printing to samba; with its fonts, and with
    # libatomic, which a bare Debian lacks and the Node.js of Playwright needs.
    $sudo apt-get update -qq &&
        $sudo apt-get install -y -qq --no-install-recommends "$@" libatomic1 fonts-liberation fonts-noto-color-emoji >/dev/null
}
command -v chromium-headless-shell >/dev/null 2>&1 && exit 0
[ "$(id -u)" -eq 0 ] && install chromium-headless-shell && exit 0 # nobody is asked for a password while one is there
for name in chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null 2>&1 && exit 0
done
[ -d "/Applications/Google Chrome.app" ] && exit 0
install chromium && exit 0
.venv/bin/python -m playwright install chromium
