"""doctor: checks this installation and the speed of this machine, for bug reports."""

import os
import platform
import shutil
import time
from collections.abc import Callable
from importlib.metadata import distributions
from importlib.util import find_spec
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

from sbert_app import __version__
from sbert_app.commands import options
from sbert_app.formats import format_bytes
from sbert_app.process import EXTRA_OF
from sbert_app.terminal import clean_stdout, print_result
from training.data.load import load_data
from training.errors import InputError, UserFacingError, first_line
from training.sources.home import is_offline, make_home

PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "numpy",
    "pyarrow",
    "gradio",
    "umap-learn",
    "faiss-cpu",
    "ray",
)
# The number of sentences that are encoded to measure the speed.
SENTENCES = 256
# The seconds to wait for the Hub, and for the package index.
WAIT = 5.0


@options.grouped
def doctor(computing: options.Computing) -> int:
    """Check versions, devices, home folder, model, network and speed.

    Exits with 1 if the installation is broken.
    """
    checks: dict[str, Callable[[], str]] = {
        "SBERT Lab": lambda: (
            f"{__version__}, Python {platform.python_version()}, {platform.platform()}"
        ),
        "packages": _packages,
        "extras": _extras,
        "device": lambda: _device(computing),
        "home": lambda: _home(computing),
        "Hub": lambda: _reach(os.environ.get("HF_ENDPOINT") or "https://huggingface.co"),
        "package index": lambda: _reach(
            os.environ.get("PIP_INDEX_URL") or "https://pypi.org/simple/"
        ),
        "speed": lambda: _speed(computing),
    }
    results = {}
    failed = []
    with clean_stdout():
        for name, check in checks.items():
            try:
                results[name] = check()
            except UserFacingError as error:
                results[name] = f"failed: {error.public}"
                failed.append(name)
            except (OSError, RuntimeError, ImportError) as error:
                results[name] = f"failed: {first_line(error)}"
                failed.append(name)
    lines = [f"{name:14} {result}" for name, result in results.items()]
    print_result({**results, "failed": failed}, computing.as_json, "\n".join(lines))
    # The exit code. The app works without a network.
    return int(bool(set(failed) - {"Hub", "package index"}))


def _packages() -> str:
    versions = {package.name: package.version for package in distributions()}
    return ", ".join(f"{name} {versions[name]}" for name in PACKAGES if name in versions)


def _extras() -> str:
    """Returns the extras whose modules are all installed. Some modules, such as anyio, come with other packages too."""
    # A dict keeps the order of the extras.
    complete = dict.fromkeys(EXTRA_OF.values())
    for module, extra in EXTRA_OF.items():
        if not find_spec(module):
            complete.pop(extra, None)
    return ", ".join(complete) or "none"


def _device(computing: options.Computing) -> str:
    """Returns the device and its threads; for a CPU also the reason why no GPU is used."""
    # torch takes seconds to import.
    import torch

    from training.device import describe_device, pick_device, pick_dtype

    device = pick_device(computing.device)
    dtype = str(pick_dtype(computing.dtype, device)).removeprefix("torch.")
    description = f"{describe_device(device)}, {dtype}, {torch.get_num_threads()} threads of {os.cpu_count()} cores"
    if device.type != "cpu":
        return description
    reason = "no GPU"
    if torch.version.cuda is None and torch.version.hip is None:
        reason = f"no GPU, because PyTorch {torch.__version__} is built for the CPU alone"
    elif torch.cuda.is_available():
        reason = "there is a GPU, which --device cpu leaves unused"
    else:
        try:
            # The error says why PyTorch cannot use a GPU.
            torch.cuda.init()
        except (AssertionError, RuntimeError) as error:
            reason = f"no GPU for PyTorch {torch.__version__}: {first_line(error)}"
    return f"{description}; {reason}"


def _home(computing: options.Computing) -> str:
    home = computing.prepare()
    # Raises InputError if the folder cannot be written to.
    make_home(home)
    return f"{home}, {format_bytes(shutil.disk_usage(home).free)} free"


def _reach(address: str) -> str:
    """Returns how fast a server answers. Raises InputError if it cannot be reached."""
    if is_offline():
        return "not asked, because offline"
    # Only the host is printed, because the address of a mirror may contain a password.
    host = urlsplit(address).hostname
    started = time.perf_counter()
    try:
        urlopen(address, timeout=WAIT).close()
    except HTTPError:
        # The server has answered, which is enough.
        pass
    except URLError as error:
        raise InputError(f"{host} cannot be reached: {error.reason}") from error
    return f"{host} answers in {1000 * (time.perf_counter() - started):.0f} ms"


def _speed(computing: options.Computing) -> str:
    """Returns the number of sentences that the default model encodes in a second."""
    from training.models.encoder import Encoder

    home = computing.prepare()
    # Without options this is the default model.
    name = options.ModelOptions().name
    encoder = Encoder.load(name, dtype=computing.dtype, device=computing.device, home=home)
    sentences = load_data("stsb:dev", home).columns[0][:SENTENCES]
    # The first call takes longer than later ones.
    encoder.encode(sentences)
    started = time.perf_counter()
    encoder.encode(sentences)
    rate = len(sentences) / (time.perf_counter() - started)
    return f"{rate:,.0f} sentences/s with {encoder.name} from the {encoder.source}, {len(sentences)} of STSb"
