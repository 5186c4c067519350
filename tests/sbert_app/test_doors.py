"""A real app that somebody attacks: forged addresses, guesses, foreign pages, other accounts of the machine."""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from running_app import RunningApp, running_app

from sbert_app.commands import options
from sbert_app.commands.serve import serve
from sbert_app.server import run
from sbert_app.server.login import FREE_ATTEMPTS
from training.errors import InputError

ORIGIN, TOKEN = "app://obsidian.md", "a-token-for-machines"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def app(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApp]:
    own = tmp_path_factory.mktemp("doors")
    flags = ("--auth", "teacher:correct horse", "--allow-origin", ORIGIN)
    with running_app(home, own, *flags, SBERT_TOKEN=TOKEN) as app:
        yield app


@pytest.mark.slow
def test_guesses_with_forged_addresses_come_from_one_visitor_and_hold_up_nobody(app):
    def guess(number: int) -> int:
        forged = {**FORM, "X-Forwarded-For": f"10.0.0.{number}"}
        return app.ask("/login", b"username=teacher&password=guess", forged).status

    with ThreadPoolExecutor(60) as threads:
        codes = threads.map(guess, range(60))
        assert app.ask("/health", timeout=5).status in (200, 503)
        assert sorted(codes)[: FREE_ATTEMPTS + 1] == [401] * FREE_ATTEMPTS + [429]


@pytest.mark.slow
def test_the_page_of_an_allowed_origin_may_ask_before_it_sends_its_token(app):
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    allowed = app.ask("/v1/embeddings", headers={"Origin": ORIGIN, **asks}, method="OPTIONS")
    assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (200, ORIGIN)
    assert app.ask("/v1/embeddings", headers={"Origin": "app://other", **asks}, method="OPTIONS").status == 403
    named = {"Origin": ORIGIN, "Authorization": f"Bearer {TOKEN}"}
    answer = app.ask("/v1/models", headers=named)
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, ORIGIN)


@pytest.mark.slow
def test_other_accounts_of_the_machine_read_nothing_that_visitors_write(app):
    boundary = {"Content-Type": "multipart/form-data; boundary=x", "Authorization": f"Bearer {TOKEN}"}
    head = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.csv"\r\n\r\n'
    sent = app.ask("/gradio_api/upload", head + b"sentence1,sentence2\na b,c d\n\r\n--x--\r\n", boundary)
    file = {"path": json.loads(sent.text)[0], "meta": {"_type": "gradio.FileData"}}
    scored = app.call("score_file", file, "", "scratch:1x32", Authorization=f"Bearer {TOKEN}")
    assert scored.status == 200, scored.text
    written = [path for path in app.home.rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(written) > 3
    assert [path for path in written if path.stat().st_mode & 0o077 and "numba" not in path.parts] == []
    assert app.home.stat().st_mode & 0o007 == 0


def test_what_serve_opens_to_a_network_without_a_login_is_said(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(options, "prepare", lambda *_: tmp_path)
    monkeypatch.setattr(run, "serve", lambda *_: None)
    for host, auth, is_told in (("0.0.0.0", None, True), ("0.0.0.0", "a:b", False), ("127.0.0.1", None, False)):  # noqa: S104
        serve(host=host, auth=auth, home=tmp_path, open_browser=False)
        assert ("There is no login: whoever reaches this port" in capsys.readouterr().err) == is_told


def test_serve_ray_without_ray_refuses_at_the_start(monkeypatch, tmp_path):
    monkeypatch.setattr("sbert_app.commands.serve.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"Ray is not installed: pip install 'sbert-lab\[ray\]'"):
        serve(ray="local", home=tmp_path)


def test_a_home_is_closed_to_others_and_stays_open_to_its_group(tmp_path):
    from training.sources.home import make_home

    before = os.umask(0o022)
    try:
        (tmp_path / "old").mkdir(0o775)
        (tmp_path / "old").chmod(0o775)
        for name, mode in (("new", 0o700), ("old", 0o770)):
            make_home(tmp_path / name)
            assert (tmp_path / name).stat().st_mode & 0o777 == mode
    finally:
        os.umask(before)
