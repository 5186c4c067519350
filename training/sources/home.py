"""The home folder of SBERT Lab, and whether the network may be used."""

import errno
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from training.errors import InputError


def home_folder(home: str | Path | None = None) -> Path:
    """The folder for models, data and runs: ``home``, else $SBERT_HOME, else the platform's user data folder."""
    if folder := home or os.environ.get("SBERT_HOME"):
        return Path(folder).expanduser().absolute()
    user = Path.home()
    base = {
        "darwin": user / "Library/Application Support",
        "win32": Path(os.environ.get("LOCALAPPDATA") or user / "AppData/Local"),
    }.get(sys.platform, Path(os.environ.get("XDG_DATA_HOME") or user / ".local/share"))
    return base / "sbert-lab"


def make_home(home: Path) -> None:
    """Creates the home folder if there is none. InputError with the reason if it cannot be created or written to."""
    try:
        home.mkdir(0o700, parents=True, exist_ok=True)
        with suppress(PermissionError):
            # Other accounts of the machine read nothing; a home that a group shares stays shared.
            home.chmod(home.stat().st_mode & ~0o007)
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        if error.errno == errno.ENOSPC:
            # The files that are there can be used, and work that needs space reports that it has none.
            return
        reason = error.strerror or error
        raise InputError(
            f"the home folder {home} cannot be written to: {reason}; name another one with --home or SBERT_HOME"
        ) from error


def set_offline(offline: bool) -> None:
    """Switches the Hub and the package index off or on, for this process and the processes that it starts."""
    os.environ["HF_HUB_OFFLINE"] = "1" if offline else "0"


def is_offline() -> bool:
    """Whether the environment forbids the network (HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE)."""
    switches = (os.environ.get(name, "") for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))
    return any(switch.upper() in {"1", "ON", "YES", "TRUE"} for switch in switches)
