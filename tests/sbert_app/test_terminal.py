"""What the command line shows: one line of progress, and JSON that every parser takes."""

import io
import json
import logging
import sys

import pytest

from sbert_app import terminal
from sbert_app.terminal import Bar, StderrHandler, answer, clean_stdout


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


def test_an_answer_is_one_line_of_json_or_words(capsys: pytest.CaptureFixture[str]):
    answer({"ρ": 0.5}, True, "half")
    answer({"ρ": 0.5}, False, "half")
    first, second = capsys.readouterr().out.splitlines()
    assert (json.loads(first), second) == ({"ρ": 0.5}, "half")
    assert first.isascii()


def test_prints_go_to_stderr_meanwhile(capsys: pytest.CaptureFixture[str]):
    with clean_stdout():
        print("advice")
    print("answer")
    assert capsys.readouterr() == ("answer\n", "advice\n")


def test_a_terminal_has_one_line_that_is_written_over_and_taken_away(clock: list[float]):
    stream = Terminal()
    with Bar("encoding", "sentences", stream) as bar:
        for done in (0, 100, 200):
            bar(done, 1_000)
            clock[0] += 1
    written = stream.getvalue()
    assert "\n" not in written
    assert "20%" in written
    assert "200 of 1,000 sentences  100.0/s  8 s left" in written
    assert written.endswith(terminal.BEGIN_LINE)


def test_a_pipe_gets_a_plain_line_now_and_then(clock: list[float]):
    stream = io.StringIO()
    with Bar("encoding", "sentences", stream) as bar:
        for done in range(25):
            bar(done, None)
            clock[0] += 1
    lines = stream.getvalue().splitlines()
    assert lines == ["encoding  10 sentences  1.0/s", "encoding  20 sentences  1.0/s"]


def test_the_rate_is_of_this_session_when_work_was_done_before(clock: list[float]):
    stream = Terminal()
    bar = Bar("training", "steps", stream)
    bar(5_000, 6_000)
    clock[0] += 10
    bar(5_100, 6_000)
    assert "10.0/s  1 min 30 s left" in stream.getvalue()


@pytest.mark.parametrize("columns", [20, 50, 80, 100, 200])
def test_the_line_fits_the_terminal(columns: int):
    line = Bar("encoding", "sentences", Terminal()).line(1_234_567, 10_000_000, 1_830.4, columns)
    assert len(line) <= columns
    assert ("#" in line) == (columns >= 100)


def test_log_lines_stand_above_the_bar(clock: list[float], monkeypatch: pytest.MonkeyPatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with Bar("encoding", "sentences") as bar:
        bar(1, 10)
        clock[0] += 1
        bar(2, 10)
        StderrHandler().handle(logging.LogRecord("x", logging.WARNING, "", 0, "3 were cut", (), None))
    shown, said = stream.getvalue().split(terminal.BEGIN_LINE)[1:3]
    assert "2 of 10" in shown
    assert said == "3 were cut\n"
