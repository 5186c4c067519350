"""What `serve` opens to others, and what a home folder does not."""

import os

import pytest

from sbert_app.commands import options
from sbert_app.commands.serve import serve
from sbert_app.server import run
from training.errors import InputError


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
