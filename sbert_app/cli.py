"""The command line: sbert-lab serve | encode | score | export | evaluate | train | ablate | runs | home | …

Exit codes: 0 success; 2 the input is wrong; 130 stopped (Ctrl-C, SIGTERM, a closed terminal); 1 any other error. An
error is one line on stderr; SBERT_DEBUG=1 adds the traceback and the log. Incomplete output files are removed.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Annotated, Any

import typer

from sbert_app import __version__
from sbert_app.commands.ablate import ablate
from sbert_app.commands.benchmark import benchmark
from sbert_app.commands.distill import distill
from sbert_app.commands.encode import encode
from sbert_app.commands.evaluate import evaluate
from sbert_app.commands.export import export
from sbert_app.commands.home import home
from sbert_app.commands.runs import runs
from sbert_app.commands.score import score
from sbert_app.commands.serve import serve
from sbert_app.commands.train import train
from sbert_app.commands.worker import worker
from sbert_app.process import configure_process
from sbert_app.signals import interruptible
from sbert_app.terminal import StderrHandler
from training.errors import Stopped, UserFacingError

GOOD, BROKEN, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130

app = typer.Typer(
    name="sbert-lab",
    help="SBERT Lab: understand, measure and tune sentence similarity with Sentence-BERT.",
    add_completion=False,
    rich_markup_mode=None,  # plain help appears at once, in any terminal
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
for command in (serve, encode, score, export, evaluate, train, distill, ablate, benchmark, worker):
    app.command()(command)
app.add_typer(runs, name="runs")
app.add_typer(home, name="home")


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        print(f"sbert-lab {__version__}")
        raise typer.Exit


_UsageError: Any = typer.BadParameter.__mro__[2]  # ClickException, which typer keeps under changing names
# What can be wrong with a path or a disk, and is not a fault of the program.
_USERS_TO_MEND = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM}
_USERS_TO_MEND |= {errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG, errno.ELOOP}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Without arguments, print the help."""
    given = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    debug = os.environ.get("SBERT_DEBUG", "") not in ("", "0")
    _configure_output(debug)
    configure_process()
    try:
        with interruptible():
            code = app(given, prog_name=app.info.name, standalone_mode=False)
        sys.stdout.flush()
        if code == INTERRUPTED:
            return _print_error("stopped", INTERRUPTED)
        return code if isinstance(code, int) else GOOD
    except (KeyboardInterrupt, typer.Abort):
        return _print_error("stopped", INTERRUPTED)
    except Stopped as error:
        return _print_error(f"stopped: {error}" if str(error) else "stopped", INTERRUPTED)
    except BrokenPipeError:  # the reader of stdout has closed it, such as | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN
    except _UsageError as error:
        return _print_error(f"error: {error.format_message()}", WRONG_INPUT)
    except UserFacingError as error:
        return _fail(str(error), WRONG_INPUT, debug)
    except OSError as error:
        code = WRONG_INPUT if error.errno in _USERS_TO_MEND else BROKEN
        return _fail(f"{error.filename or 'a file'}: {error.strerror or error}", code, debug)
    except Exception as error:  # noqa: BLE001 - the last place to turn a fault of the program into one line
        return _fail(f"{type(error).__name__}: {error}", BROKEN, debug)


def _fail(what: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    return _print_error(f"error: {what}", code)


def _print_error(line: str, code: int) -> int:
    print(" ".join(line.split()), file=sys.stderr)
    return code


def _configure_output(debug: bool) -> None:
    """Silence libraries; log to stderr, on a terminal from level INFO, elsewhere from WARNING."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    app_logger = logging.getLogger("sbert_lab")
    app_logger.handlers = [StderrHandler(logging.INFO if debug or sys.stderr.isatty() else logging.WARNING)]
    app_logger.setLevel(logging.INFO)
    if debug:
        return
    warnings.simplefilter("ignore")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
