"""Settings: flags over variables over defaults; nonsense is named."""

from pathlib import Path

import pytest

from sbert_app.settings import Settings
from training.errors import InputError


def test_defaults_are_safe(monkeypatch):
    for name in ("HOST", "PORT", "AUTH", "MCP"):
        monkeypatch.delenv(f"SBERT_{name}", raising=False)
    settings = Settings.gather()
    assert (settings.host, settings.port, settings.auth, settings.mcp) == ("127.0.0.1", 7860, None, False)
    assert settings.upload_limit_mb == 200


def test_a_flag_wins_over_a_variable_over_the_default(monkeypatch, tmp_path):
    monkeypatch.setenv("SBERT_PORT", "9000")
    monkeypatch.setenv("SBERT_OFFLINE", "yes")
    assert Settings.gather().port == 9000
    assert Settings.gather(port=9001).port == 9001
    assert Settings.gather().offline is True
    assert Settings.gather(home=str(tmp_path)).home == Path(tmp_path)


def test_user_and_password_are_split_at_the_first_colon():
    assert Settings.gather(auth="ada:se:cret").auth == ("ada", "se:cret")


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"port": "http"}, "port"),
        ({"port": 70_000}, "port"),
        ({"auth": "ada"}, "auth"),
        ({"offline": "maybe"}, "offline"),
    ],
)
def test_nonsense_is_refused_by_name(flags, named):
    with pytest.raises(InputError, match=named):
        Settings.gather(**flags)
