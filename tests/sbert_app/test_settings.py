"""Settings: flags over variables over defaults; nonsense is named. Doors that are open to others, and that are not."""

import os
from pathlib import Path

import pytest

from sbert_app.commands import options
from sbert_app.commands.serve import serve
from sbert_app.server import run
from sbert_app.settings import Settings
from training.errors import InputError
from training.sources.home import make_home


def test_defaults_are_safe(monkeypatch):
    for name in ("HOST", "PORT", "AUTH", "MCP"):
        monkeypatch.delenv(f"SBERT_{name}", raising=False)
    settings = Settings.gather()
    assert (settings.host, settings.port, settings.auth, settings.mcp) == (
        "127.0.0.1",
        7860,
        None,
        False,
    )
    assert settings.upload_limit_mb == 200


def test_a_flag_wins_over_a_variable_over_the_default(monkeypatch, tmp_path):
    monkeypatch.setenv("SBERT_PORT", "9000")
    monkeypatch.setenv("SBERT_OFFLINE", "yes")
    assert Settings.gather().port == 9000
    assert Settings.gather(port=9001).port == 9001
    monkeypatch.setenv("PORT", "8080")
    assert Settings.gather().port == 9000
    monkeypatch.delenv("SBERT_PORT")
    assert Settings.gather().port == 8080, "as hosting services say where to listen"
    assert Settings.gather(port=0).port == 0, "any free port"
    assert Settings.gather().offline is True
    assert Settings.gather(home=str(tmp_path)).home == Path(tmp_path)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"port": "http"}, "port"),
        ({"port": 70_000}, "port"),
        ({"auth": "secret-without-user"}, "^auth must be USER:PASSWORD$"),
        ({"offline": "maybe"}, "offline is 'maybe'; it must be yes or no"),
        ({"upload_limit_mb": 0}, "whole number from 1 to 100000"),
        ({"token": "short"}, "at least 8 characters"),
        *(
            ({"allow_origins": [origin]}, "origins such as")
            for origin in ("*", "null", "obsidian.md", "http://x/path")
        ),
    ],
)
def test_nonsense_is_refused_by_name(flags, named):
    with pytest.raises(InputError, match=named):
        Settings.gather(**flags)


def test_hosts_folders_and_endpoints_are_lists_in_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("SBERT_ALLOW_HOSTS", "lab.example, other.example")
    monkeypatch.setenv("SBERT_ALLOW_PATHS", f"{tmp_path}:~")
    monkeypatch.setenv("SBERT_ALLOW_ENDPOINTS", "LOCALHOST:11434, api.openai.com")
    settings = Settings.gather()
    assert settings.allow_hosts == ("lab.example", "other.example")
    assert settings.allow_paths == (tmp_path, Path.home())
    assert settings.allow_endpoints == ("localhost:11434", "api.openai.com:443")
    assert Settings.gather(allow_endpoints=("[::1]:8080",)).allow_endpoints == ("[::1]:8080",)
    for wrong in ("http://localhost", "user@localhost", "*", "a b"):
        with pytest.raises(InputError, match=r"allow_endpoints .* must be HOST or HOST:PORT"):
            Settings.gather(allow_endpoints=(wrong,))


def test_user_and_password_come_from_a_flag_or_the_first_line_of_a_file(tmp_path, monkeypatch):
    file = tmp_path / "auth"
    file.write_text("ada:se:cret\nmore\n")
    monkeypatch.setenv("SBERT_AUTH", "ada:environment")
    assert Settings.gather(auth_file=file).auth == ("ada", "se:cret")
    assert Settings.gather(auth_file=file, auth="ada:flag").auth == ("ada", "flag")


@pytest.mark.parametrize("content", [None, b"", b"no colon", b"\xff\xfe:"])
def test_a_file_without_user_and_password_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "auth").write_bytes(content)
    with pytest.raises(InputError, match="USER:PASSWORD"):
        Settings.gather(auth_file=tmp_path / "auth")


def test_an_app_for_everybody_has_small_defaults_that_flags_win_over(monkeypatch, tmp_path):
    monkeypatch.setenv("SBERT_PUBLIC", "yes")
    found = Settings.gather(home=tmp_path, models_mb=512)
    assert (found.public, found.upload_limit_mb, found.models_mb) == (True, 10, 512)
    assert Settings.gather(home=tmp_path, root_path="/sbert").root_path == "/sbert"
    with pytest.raises(InputError, match="root_path is 'sbert'; it must be a path such as /sbert"):
        Settings.gather(root_path="sbert")


def test_what_serve_opens_to_a_network_without_a_login_is_said(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(options, "prepare", lambda *_: tmp_path)
    monkeypatch.setattr(run, "serve", lambda *_: None)
    everywhere = "0.0.0.0"  # noqa: S104
    for host, auth, is_told in (
        (everywhere, None, True),
        (everywhere, "a:b", False),
        ("127.0.0.1", None, False),
    ):
        serve(host=host, auth=auth, home=tmp_path, open_browser=False)
        assert (
            "There is no login: whoever reaches this port" in capsys.readouterr().err
        ) == is_told


def test_serve_ray_without_ray_refuses_at_the_start(monkeypatch, tmp_path):
    monkeypatch.setattr("sbert_app.commands.serve.find_spec", lambda name: None)
    with pytest.raises(
        InputError,
        match=r'Ray is not installed: in the clone of SBERT Lab, pip install "\.\[ray\]"',
    ):
        serve(ray="local", home=tmp_path)


def test_a_home_is_closed_to_others_and_stays_open_to_its_group(tmp_path):
    before = os.umask(0o022)
    try:
        (tmp_path / "old").mkdir(0o775)
        (tmp_path / "old").chmod(0o775)
        for name, mode in (("new", 0o700), ("old", 0o770)):
            make_home(tmp_path / name)
            assert (tmp_path / name).stat().st_mode & 0o777 == mode
    finally:
        os.umask(before)
