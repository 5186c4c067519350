"""The command line: sbert-lab serve | encode | score | search | evaluate | train | runs | home | doctor | …

Exit codes: 0 success; 2 the input is wrong; 130 stopped (Ctrl-C, SIGTERM, a closed terminal); 1 any
other error. An error is one line on stderr; SBERT_DEBUG=1 adds the traceback and the log.
Incomplete output files are removed.
"""

import errno
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer import Option

from sbert_app import __version__
from sbert_app.commands.ablate import ablate
from sbert_app.commands.catalogue import data, models
from sbert_app.commands.doctor import doctor
from sbert_app.commands.evaluate import evaluate
from sbert_app.commands.files import encode, score
from sbert_app.commands.home import home
from sbert_app.commands.runs import report, runs, worker
from sbert_app.commands.sentences import cluster, compare, export, search
from sbert_app.commands.serve import desktop, serve
from sbert_app.commands.threshold import threshold
from sbert_app.commands.train import train
from sbert_app.process import EXTRA_OF, INTERRUPTED, configure_process, interrupt, on_ending_signal
from sbert_app.terminal import ProgressBar, StderrHandler
from training.errors import StoppedError, UserFacingError, install_command

GOOD = 0
BROKEN = 1
WRONG_INPUT = 2

app = typer.Typer(
    name="sbert-lab",
    help="SBERT Lab: understand, measure and tune sentence similarity with Sentence-BERT.",
    # Plain help appears at once, in any terminal.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="`sbert-lab help COMMAND` explains a command. `sbert-lab doctor` prints what a report of a fault needs.",
)
# The example of each command, which its help ends with. docs/cli.md has the examples, too.
EXAMPLES: dict[Callable[..., Any], str] = {
    serve: "serve --port 7860",
    desktop: "desktop",
    compare: 'compare "A cat sleeps." "A kitten is asleep."',
    encode: "encode sentences.txt vectors.npy",
    score: "score pairs.csv scored.csv --cross-encoder minilm-stsb",
    search: 'search reviews.csv "does the battery last?" --columns text',
    cluster: "cluster reviews.csv clusters.csv --columns text",
    export: "export reviews.csv atlas.parquet --columns text",
    evaluate: "evaluate --data judged.csv --columns left,right,gold",
    threshold: "threshold --model all-MiniLM-L6-v2 --was tfidf@0.5",
    train: "train --objective regression --pooling mean --train-data stsb:train --eval-data stsb:dev --name demo",
    ablate: "ablate --preset pooling --seeds 3",
    report: "report run:demo report.html",
    models: "models",
    data: "data 'judged.csv?columns=left,right,gold'",
    doctor: "doctor",
    worker: "worker --ray auto",
}
for command, example in EXAMPLES.items():
    app.command(epilog=f"\b\nExample:\n  sbert-lab {example}")(command)
app.add_typer(runs, name="runs", epilog="\b\nExample:\n  sbert-lab runs show demo")
app.add_typer(home, name="home", epilog="\b\nExample:\n  sbert-lab home backup lab.zip")

VERBOSE = ("--verbose", "-v")
QUIET = ("--quiet", "-q")
NO_PROGRESS = ("--no-progress",)
# Spellings that other commands have for an option of a command.
SPELLINGS = {
    "train": {"--model": "--base"},
    "ablate": {"--model": "--base"},
    "worker": {"--device": "--gpu"},
}


@app.callback(invoke_without_command=True)
def _global_options(
    version: Annotated[bool, Option("--version", help="Print the version and exit.")] = False,
    verbose: Annotated[
        bool, Option(*VERBOSE, help="Anywhere: log to stderr what is read from where.")
    ] = False,
    quiet: Annotated[bool, Option(*QUIET, help="Anywhere: nothing on stderr but errors.")] = False,
    no_progress: Annotated[
        bool, Option(*NO_PROGRESS, help="Anywhere: no progress on stderr.")
    ] = False,
) -> None:
    if version:
        print(f"sbert-lab {__version__}")
        raise typer.Exit
    ProgressBar.is_wanted = not (quiet or no_progress)
    if verbose or quiet:
        level = logging.ERROR if quiet else logging.INFO
        # The one handler is the `StderrHandler` of `_configure_output`.
        logging.getLogger("sbert_lab").handlers[0].setLevel(level)


def normalize(arguments: Sequence[str]) -> list[str]:
    """Returns arguments as the commands take them: global options first, and options in the command's own spelling.

    ``help COMMAND`` becomes ``COMMAND --help``, and no arguments become ``--help``.
    """
    if arguments[:1] == ["help"] or not arguments:
        arguments = [*arguments[1:], "--help"]
    # After "--" nothing is an option, such as a sentence that begins with "-".
    end = arguments.index("--") if "--" in arguments else len(arguments)
    global_options = []
    others: list[str] = []
    for argument in arguments[:end]:
        if argument in (*VERBOSE, *QUIET, *NO_PROGRESS):
            global_options.append(argument)
            continue
        # The first of the others is the command.
        spellings = SPELLINGS.get(others[0], {}) if others else {}
        name, equals, value = argument.partition("=")
        others.append(spellings.get(name, name) + equals + value)
    return [*global_options, *others, *arguments[end:]]


# Errors of paths and disks, which are not faults of the program.
_USER_ERRORS = {
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.ENAMETOOLONG,
    errno.ELOOP,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. Without arguments it prints the help."""
    if arguments is None:
        arguments = sys.argv[1:]
    arguments = normalize(list(arguments))
    debug = os.environ.get("SBERT_DEBUG", "") not in ("", "0")
    _configure_output(debug)
    configure_process()
    try:
        with on_ending_signal(interrupt):
            code = app(arguments, prog_name=app.info.name, standalone_mode=False)
        sys.stdout.flush()
        # typer turns a KeyboardInterrupt in a command into this exit code.
        if code == INTERRUPTED:
            return _print_error("stopped", INTERRUPTED)
        # `doctor` returns its exit code, and typer.Exit has one; the other commands return None.
        return code if isinstance(code, int) else GOOD
    except (KeyboardInterrupt, typer.Abort):
        return _print_error("stopped", INTERRUPTED)
    except StoppedError as error:
        reason = f": {error}" if str(error) else ""
        return _print_error(f"stopped{reason}", INTERRUPTED)
    except BrokenPipeError:
        # The reader of stdout, such as head, has closed it. Without this, Python's last flush of stdout
        # would print a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN
    except UserFacingError as error:
        return _fail(str(error), WRONG_INPUT, debug)
    except OSError as error:
        code = WRONG_INPUT if error.errno in _USER_ERRORS else BROKEN
        return _fail(f"{error.filename or 'a file'}: {error.strerror or error}", code, debug)
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in EXTRA_OF:
            return _fail(f"ModuleNotFoundError: {error}", BROKEN, debug)
        extra = EXTRA_OF[name]
        return _fail(f"this needs {name}: {install_command(extra)} installs it", WRONG_INPUT, debug)
    except Exception as error:  # noqa: BLE001 - the last place to turn a fault of the program into one line
        # Errors of usage. typer does not export their common class, which has a method of this name.
        if hasattr(error, "format_message"):
            message = f"error: {error.format_message()}"
            if "--" not in arguments and any(map(_is_dashed_sentence, arguments)):
                message += "; put -- before a sentence that begins with -"
            return _print_error(message, WRONG_INPUT)
        message = f"{type(error).__name__}: {error}"
        if not debug:
            message += " (a fault of SBERT Lab: SBERT_DEBUG=1 shows where, for a report)"
        return _fail(message, BROKEN, debug)


def _is_dashed_sentence(argument: str) -> bool:
    """Whether an argument begins with "-", but has a space where an option has its name."""
    return argument.startswith("-") and " " in argument.partition("=")[0]


def _fail(message: str, code: int, debug: bool) -> int:
    """Prints an error, with the traceback for ``debug``. Returns the exit code."""
    if debug:
        traceback.print_exc()
    return _print_error(f"error: {message}", code)


def _print_error(line: str, code: int) -> int:
    """Prints a text as one line. Returns the exit code."""
    print(" ".join(line.split()), file=sys.stderr)
    return code


def _configure_output(debug: bool) -> None:
    """Silences libraries, and logs to stderr: from level INFO on a terminal, from WARNING elsewhere."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # The encoding of a terminal may lack a character, for which ? is printed.
            stream.reconfigure(errors="replace")
    app_logger = logging.getLogger("sbert_lab")
    level = logging.INFO if debug or sys.stderr.isatty() else logging.WARNING
    app_logger.handlers = [StderrHandler(level)]
    app_logger.setLevel(logging.INFO)
    if debug:
        return
    warnings.simplefilter("ignore")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
