"""Workers: results in order, few items under way, errors at their place, and PyTorch's own threads untouched."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest
import torch
from paths import ROOT

from training import parallel


def test_results_come_in_order_and_a_single_piece_has_all_cores():
    assert list(parallel.imap(lambda x: x * x, range(100))) == [x * x for x in range(100)]
    assert parallel.run_parallel([partial(pow, x, 2) for x in range(50)]) == [
        x * x for x in range(50)
    ]
    assert parallel.run_parallel([torch.get_num_threads]) == [torch.get_num_threads()]


def test_there_are_as_many_workers_as_pytorch_has_threads():
    before = torch.get_num_threads()
    together = threading.Barrier(parallel.num_threads())

    def threads(_: int) -> tuple[int, int]:
        together.wait(timeout=60)
        return threading.get_ident(), torch.get_num_threads()

    seen = list(parallel.imap(threads, range(parallel.num_threads())))
    assert len({ident for ident, _ in seen}) == parallel.num_threads() == before
    assert {count for _, count in seen} == {1}


NUMBERS = """
import threading, torch
from training import parallel
before, later = torch.get_num_threads(), []
list(parallel.imap(abs, [1]))
thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
thread.start()
thread.join()
print(before, torch.get_num_threads(), later[0])
"""


def test_the_callers_threads_and_those_born_later_keep_pytorchs_number():
    """In a process of its own: the number is global, and threads that other tests have left may change it."""
    output = subprocess.run(
        [sys.executable, "-c", NUMBERS], check=True, capture_output=True, text=True, cwd=ROOT
    ).stdout
    assert len(set(output.split())) == 1, output


def test_items_are_taken_as_results_are():
    taken: list[int] = []

    def items() -> Iterator[int]:
        for i in range(1_000):
            taken.append(i)
            yield i

    results = parallel.imap(abs, items())
    assert next(results) == 0
    assert len(taken) <= parallel.num_threads() + 1
    results.close()
    assert list(parallel.imap(abs, [-3])) == [3], "a caller who stops leaves nothing behind"


def test_an_error_comes_out_at_its_place():
    results = parallel.imap(lambda x: 1 // x, [1, 1, 0, 1])
    assert [next(results), next(results)] == [1, 1]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_a_single_item_is_computed_by_the_caller_in_one_thread():
    before = torch.get_num_threads()
    found = list(
        parallel.imap(lambda _: (threading.get_ident(), torch.get_num_threads()), ["only"])
    )
    assert found == [(threading.get_ident(), 1)]
    assert torch.get_num_threads() == before
    with pytest.raises(ZeroDivisionError):
        list(parallel.imap(lambda x: 1 / x, [0]))
    assert torch.get_num_threads() == before
    assert list(parallel.imap(lambda x: x, [])) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_forked_child_has_workers_of_its_own():
    assert list(parallel.imap(abs, [-1])) == [1]
    child = os.fork()
    if child == 0:
        os._exit(0 if list(parallel.imap(abs, [-1, -2])) == [1, 2] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_every_core_takes_part_with_one_thread_each():
    before = torch.get_num_threads()
    together = threading.Barrier(parallel.num_threads())

    def piece() -> tuple[int, int]:
        together.wait(timeout=60)
        return threading.get_ident(), torch.get_num_threads()

    seen = parallel.run_parallel([piece] * parallel.num_threads())
    assert len({ident for ident, _ in seen}) == parallel.num_threads()
    assert threading.get_ident() in {ident for ident, _ in seen}
    if parallel.num_threads() > 1:
        assert {count for _, count in seen} == {1}
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("wrong", [0, 5])
def test_an_error_in_a_piece_comes_out_and_what_is_not_begun_is_dropped(wrong: int):
    done: list[int] = []

    def piece(number: int) -> None:
        if number == wrong:
            raise IndexError("of the piece")
        done.append(number)
        time.sleep(0.01)

    before = torch.get_num_threads()
    with pytest.raises(IndexError, match="of the piece"):
        parallel.run_parallel([partial(piece, number) for number in range(200)])
    assert wrong not in done
    assert len(done) < 199
    assert torch.get_num_threads() == before
    assert parallel.run_parallel([lambda: 1, lambda: 2]) == [1, 2]


def test_nobody_waits_for_workers_that_are_busy_with_something_else():
    """Not even one of them: within a worker's own work there is nobody else to help, and it does all pieces."""
    found = parallel.imap(
        lambda n: parallel.run_parallel([lambda: n, lambda: n + 1, lambda: n + 2]), range(20)
    )
    assert list(found) == [[n, n + 1, n + 2] for n in range(20)]


def test_single_threaded_ops_holds_for_its_thread_and_ends_with_the_block():
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError), parallel.single_threaded_ops():
        assert torch.get_num_threads() == 1
        assert parallel.num_threads() == before  # the workers are as many as ever
        raise ZeroDivisionError
    assert torch.get_num_threads() == before


def test_with_one_at_a_time_the_next_is_computed_while_the_caller_is_busy():
    items: list[int] = []
    computed = [threading.Event() for _ in range(100)]
    results = parallel.imap(
        lambda i: computed[i].set() or i, (items.append(i) or i for i in range(100)), at_a_time=1
    )
    assert next(results) == 0
    assert computed[1].wait(timeout=60)
    assert items == [0, 1]
