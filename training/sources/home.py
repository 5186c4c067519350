"""The home folder of SBERT Lab, and whether the network may be used."""

import errno
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from training.errors import InputError


def home_folder(home: str | Path | None = None) -> Path:
    """Returns the folder for models, data and runs: ``home``, $SBERT_HOME, or the platform's user data folder."""
    folder = home or os.environ.get("SBERT_HOME")
    if folder:
        return Path(folder).expanduser().absolute()
    user = Path.home()
    if sys.platform == "darwin":
        base = user / "Library/Application Support"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or user / "AppData/Local")
    else:
        base = Path(os.environ.get("XDG_DATA_HOME") or user / ".local/share")
    return base / "sbert-lab"


def make_home(home: Path) -> None:
    """Creates the home folder if it does not exist. InputError with the reason if it cannot be written to."""
    try:
        home.mkdir(0o700, parents=True, exist_ok=True)
        with suppress(PermissionError):
            # Other users of the machine get no access. A home that is shared by a group stays
            # shared.
            home.chmod(home.stat().st_mode & ~0o007)
        # Only a file that is created shows whether the folder can be written to.
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        if error.errno == errno.ENOSPC:
            # The existing files can be used. Work that needs space reports a full disk itself.
            return
        reason = error.strerror or error
        raise InputError(
            f"the home folder {home} cannot be written to: {reason}; name another one with --home or SBERT_HOME"
        ) from error


def set_offline(offline: bool) -> None:
    """Switches the Hub and the package index off or on, for this process and the processes that it starts."""
    os.environ["HF_HUB_OFFLINE"] = "1" if offline else "0"


def is_offline() -> bool:
    """Tells whether the environment forbids the network (HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE)."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if os.environ.get(name, "").upper() in {"1", "ON", "YES", "TRUE"}:
            return True
    return False
