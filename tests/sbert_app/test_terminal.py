"""What the command line shows: one line of progress, and JSON that every parser takes."""

import io
import json
import logging
import re
import sys

import pytest

from sbert_app import terminal
from sbert_app.terminal import ProgressBar, StderrHandler, clean_stdout, print_result


class Terminal(io.StringIO):
    """A stream that says it is one."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, to be set by hand."""
    now = [1_000.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    return now


def test_an_answer_is_one_line_of_json_or_words_and_prints_go_to_stderr(
    capsys: pytest.CaptureFixture[str],
):
    print_result({"ρ": 0.5}, True, "half")
    print_result({"ρ": 0.5}, False, "half")
    first, second = capsys.readouterr().out.splitlines()
    assert (json.loads(first), second) == ({"ρ": 0.5}, "half")
    assert first.isascii()
    with clean_stdout():
        print("advice")
    print("answer")
    assert capsys.readouterr() == ("answer\n", "advice\n")


ERASE_LINE = "\x1b[2K"


def visible(written: str) -> list[str]:
    """What a terminal showed, line by line, without control sequences."""
    return [
        line.strip()
        for line in re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "\n", written).split("\n")
        if line.strip()
    ]


@pytest.fixture(autouse=True)
def capable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a terminal it is known what it can do, and how wide it is."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")


def test_a_terminal_shows_one_progress_bar_and_erases_it_on_interrupt(clock: list[float]):
    stream = Terminal()

    def interrupted() -> None:
        with ProgressBar("encoding", "sentences", stream) as bar:
            for done in (0, 100, 200):
                bar(done, 1_000)
                clock[0] += 1
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    written = stream.getvalue()
    text = " ".join(visible(written))
    assert "encoding" in text
    assert "20%  200 of 1,000 sentences  100.0/s  8 s left" in text
    assert "━" in text
    assert visible(written[written.rindex(ERASE_LINE) :]) == [], "the line is erased at the end"
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l"), "the cursor is visible"


@pytest.mark.parametrize("stream_class", [io.StringIO, Terminal])
def test_without_a_capable_terminal_there_is_a_plain_line_now_and_then(
    clock: list[float], stream_class: type[io.StringIO], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TERM", "dumb")
    stream = stream_class()
    with ProgressBar("encoding", "sentences", stream) as bar:
        for done in range(25):
            bar(done, None)
            clock[0] += 1
    lines = stream.getvalue().splitlines()
    assert lines == ["encoding  10 sentences  1.0/s", "encoding  20 sentences  1.0/s"]


def test_the_rate_is_of_this_process_when_work_was_done_before(clock: list[float]):
    stream = io.StringIO()
    bar = ProgressBar("training", "steps", stream)
    bar(5_000, 6_000)
    clock[0] += 10
    bar(5_100, 6_000)
    assert "10.0/s  1 min 30 s left" in stream.getvalue()


def test_log_lines_are_printed_above_the_bar(clock: list[float], monkeypatch: pytest.MonkeyPatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with ProgressBar("encoding", "sentences") as bar:
        bar(1, 10)
        clock[0] += 1
        bar(2, 10)
        StderrHandler().handle(
            logging.LogRecord("x", logging.WARNING, "", 0, "3 were [cut]", (), None)
        )
    lines = visible(stream.getvalue())
    assert "3 were [cut]" in lines
    assert any("2 of 10" in line for line in lines[lines.index("3 were [cut]") :]), (
        "the bar is drawn again below"
    )
