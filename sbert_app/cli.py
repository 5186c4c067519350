"""The command line: sbert-lab serve | encode | score | evaluate | train | ablate | runs | worker | benchmark

Exit codes: 0 good; 2 the user's input is wrong, said in one line; 130 stopped by Ctrl-C; 1 anything else, in one line
too (SBERT_DEBUG=1 shows the whole traceback, and what is logged on the way). Half-written files never stay.
"""

from __future__ import annotations

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
from sbert_app.commands.encode import encode
from sbert_app.commands.evaluate import evaluate
from sbert_app.commands.runs import runs
from sbert_app.commands.score import score
from sbert_app.commands.serve import serve
from sbert_app.commands.train import train
from sbert_app.commands.worker import worker
from sbert_app.process import configure_process
from sbert_app.terminal import StderrHandler
from training.errors import Stopped, UserFacingError

GOOD, BROKEN, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130

app = typer.Typer(
    name="sbert-lab",
    help="SBERT Lab: understand, measure and tune sentence similarity with Sentence-BERT.",
    add_completion=False,
    rich_markup_mode=None,  # plain help: it is there at once, and in any terminal
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
for command in (serve, encode, score, evaluate, train, ablate, benchmark, worker):
    app.command()(command)
app.add_typer(runs, name="runs")


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        print(f"sbert-lab {__version__}")
        raise typer.Exit


_UsageError: Any = typer.BadParameter.__mro__[2]  # ClickException, which typer keeps under changing names
_WRONG_PATH = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command -> its exit code. Without arguments: the help."""
    given = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    debug = os.environ.get("SBERT_DEBUG", "") not in ("", "0")
    _be_quiet(debug)
    configure_process()
    try:
        code = app(given, prog_name=app.info.name, standalone_mode=False)
        sys.stdout.flush()
        if code == INTERRUPTED:
            return _say("stopped", INTERRUPTED)
        return code if isinstance(code, int) else GOOD
    except (KeyboardInterrupt, typer.Abort):
        return _say("stopped", INTERRUPTED)
    except Stopped as error:
        return _say(f"stopped: {error}" if str(error) else "stopped", INTERRUPTED)
    except BrokenPipeError:  # whoever read our output has left: | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN
    except _UsageError as error:
        return _say(f"error: {error.format_message()}", WRONG_INPUT)
    except UserFacingError as error:
        return _fail(str(error), WRONG_INPUT, debug)
    except _WRONG_PATH as error:
        return _fail(f"{error.filename or 'a file'}: {error.strerror or error}", WRONG_INPUT, debug)
    except Exception as error:  # noqa: BLE001 - the last place where a mistake of ours can become one line
        return _fail(f"{type(error).__name__}: {error}", BROKEN, debug)


def _fail(what: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    return _say(f"error: {what}", code)


def _say(line: str, code: int) -> int:
    print(" ".join(line.split()), file=sys.stderr)
    return code


def _be_quiet(debug: bool) -> None:
    """Libraries keep their advice and their bars to themselves. Ours goes to stderr: to a person all of it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    ours = logging.getLogger("sbert_lab")
    ours.handlers = [StderrHandler(logging.INFO if debug or sys.stderr.isatty() else logging.WARNING)]
    ours.setLevel(logging.INFO)
    if debug:
        return
    warnings.simplefilter("ignore")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
