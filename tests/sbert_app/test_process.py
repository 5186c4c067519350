"""Process-wide settings are applied when a process starts, and leaving at once loses no output, thread or handler."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import ROOT

from sbert_app import process
from sbert_app.cli import main
from sbert_app.process import ENVIRONMENT, GC_THRESHOLD, freeze_startup_objects, tune_garbage_collector


def python(code: str, environment: dict[str, str] | None = None, **options: object) -> subprocess.CompletedProcess[str]:
    """A fresh Python that runs ``code`` from the clone."""
    command = [sys.executable, "-c", code]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run(command, cwd=ROOT, env=environment, text=True, check=False, timeout=1800, **streams)


# ---------------------------------------------------------------- garbage collector


@pytest.fixture
def collector() -> Iterator[None]:
    """Restores the collector's settings."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.usefixtures("collector")
class TestGarbageCollector:
    def test_every_command_raises_the_threshold(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--help"]) == 0
        assert gc.get_threshold()[0] == GC_THRESHOLD

    def test_older_generations_keep_their_thresholds(self) -> None:
        before = gc.get_threshold()
        tune_garbage_collector()
        assert gc.get_threshold()[1:] == before[1:]

    def test_frozen_objects_are_not_scanned_again(self) -> None:
        kept: list[list[int]] = [[] for _ in range(1_000)]
        freeze_startup_objects()
        assert gc.get_freeze_count() >= len(kept)
        assert not any(scanned is kept for scanned in gc.get_objects())

    def test_objects_made_after_a_freeze_are_collected(self) -> None:
        freeze_startup_objects()
        circle: list[object] = []
        circle.append(circle)
        del circle
        assert gc.collect() >= 1


# ---------------------------------------------------------------- idle threads and memory

UNSET = {name: value for name, value in os.environ.items() if name not in ENVIRONMENT}


@pytest.mark.parametrize(
    ("user", "expected"),
    [({}, ["PASSIVE", "0", "512", "64"]), ({"OMP_WAIT_POLICY": "ACTIVE"}, ["ACTIVE", "0", "512", "64"])],
)
def test_idle_threads_sleep_and_caches_are_small_unless_the_user_decided_otherwise(
    user: dict[str, str], expected: list[str]
) -> None:
    code = """
import json, os
from sbert_app.process import ENVIRONMENT, set_environment
set_environment()
print(json.dumps([os.environ[name] for name in ENVIRONMENT]))"""
    assert json.loads(python(code, UNSET | user).stdout) == expected


def test_a_command_sets_it_before_torch_is_imported() -> None:
    code = """
import os, sys
from sbert_app.cli import main
main(['--help'])
print(os.environ['GOMP_SPINCOUNT'], 'torch' in sys.modules)"""
    assert python(code, UNSET).stdout.splitlines()[-1] == "0 False"


MANY_SHAPES = """
import ctypes, sys
from sbert_app.process import set_environment
set_environment()
import torch
class Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd a b used c d".split()]
libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Mallinfo
torch.set_num_threads(1)
layer, before = torch.nn.Linear(384, 1536, dtype=torch.bfloat16), libc.mallinfo2().used
for rows in range(100, 550):
    layer(torch.zeros(rows, 384, dtype=torch.bfloat16, requires_grad=True)).sum().backward()
print((libc.mallinfo2().used - before) >> 20)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="glibc is Linux's")
def test_batches_of_many_shapes_leave_little_behind() -> None:
    ended = python(MANY_SHAPES, UNSET)
    if "mallinfo2" in ended.stderr:
        pytest.skip("needs glibc 2.33 or later")
    assert int(ended.stdout) < 220, ended.stderr  # 568 with caches of 1,024 shapes


MAPPED_BLOCKS = """
import ctypes
from sbert_app.process import configure_malloc
libc = ctypes.CDLL(None)
class Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd a b c d e".split()]
libc.mallinfo2.restype, libc.malloc.restype, libc.malloc.argtypes = Mallinfo, ctypes.c_void_p, [ctypes.c_size_t]
def mapped():
    "How many more blocks are mapped after 8 MB are allocated."
    before = libc.mallinfo2().hblks
    libc.malloc(8 << 20)
    return libc.mallinfo2().hblks - before
before = mapped()
configure_malloc()
print(before, mapped())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc is Linux's")
def test_blocks_of_the_size_of_activations_come_from_the_heap() -> None:
    ended = python(MAPPED_BLOCKS)
    if "mallinfo2" in ended.stderr:
        pytest.skip("needs glibc 2.33 or later")
    assert ended.stdout.split() == ["1", "0"], ended.stderr


ARENAS = """
import ctypes, os, tempfile, threading
from sbert_app.process import configure_malloc
configure_malloc()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.fopen.restype, libc.malloc_info.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
libc.fclose.argtypes = [ctypes.c_void_p]
together = threading.Barrier(41)
def work():
    libc.malloc(1000)
    together.wait()
    together.wait()
for _ in range(40):
    threading.Thread(target=work, daemon=True).start()
together.wait()
with tempfile.NamedTemporaryFile() as written:
    file = libc.fopen(written.name.encode(), b"w")
    libc.malloc_info(0, file)
    libc.fclose(file)
    print(open(written.name).read().count("<heap "), max(2, os.cpu_count()))
together.wait()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc is Linux's")
def test_threads_share_an_arena_for_each_core() -> None:
    ended = python(ARENAS)
    arenas, most = map(int, ended.stdout.split())
    assert arenas <= most, ended.stderr


FREED_BLOCKS = """
import ctypes, time, weakref
from sbert_app.process import configure_malloc, release_memory_regularly
configure_malloc()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 >> 20
blocks = [libc.malloc(1 << 20) for _ in range(300)]
for block in blocks:
    ctypes.memset(block, 1, 1 << 20)
for block in blocks[:-1]:  # the last keeps the end of the heap, and with it everything before
    libc.free(block)
class Connection:
    pass
connection = Connection()
connection.protocol = connection  # a cycle
is_there = weakref.ref(connection)
del connection
before = resident()
release_memory_regularly(0.1)
time.sleep(1)
print(before, resident(), int(is_there() is not None))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc is Linux's")
def test_freed_memory_is_given_back_from_time_to_time() -> None:
    ended = python(FREED_BLOCKS)
    before, after, cycles = map(int, ended.stdout.split())
    assert before - after > 250, ended.stderr
    assert cycles == 0


MAPPED_WEIGHTS = """
import json, sys
from pathlib import Path
from safetensors.torch import load_file, save_file
import torch
from sbert_app.process import release_mapped_weights
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 >> 20
file = Path(sys.argv[1]) / "model.safetensors"
save_file({"weight": torch.arange(16 << 20).float()}, file)
weights = load_file(file)["weight"]
total, read = weights.sum().item(), resident()
release_mapped_weights()
released = resident()
again = weights.sum().item()
weights[0] = 42
release_mapped_weights()
print(json.dumps([read - released, again == total, weights[0].item(), weights[-1].item()]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_mapped_weights_that_were_read_are_let_go_and_none_that_were_written(tmp_path: Path) -> None:
    code = MAPPED_WEIGHTS.replace("sys.argv[1]", repr(str(tmp_path)))
    ended = python(code)
    assert ended.returncode == 0, ended.stderr
    released, is_same, first, last = json.loads(ended.stdout)
    assert released > 55, "of 64 MB"
    assert is_same and (first, last) == (42, (16 << 20) - 1)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_where_proc_is_hidden_the_mapped_weights_stay(monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(process.Path, "read_text", refuse)
    with caplog.at_level("INFO"):
        process.release_mapped_weights()
    assert "the mapped weights stay in memory" in caplog.text


def test_where_there_is_no_glibc_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process.ctypes, "CDLL", lambda name: object())
    process.configure_malloc()
    process.release_mapped_weights()
    monkeypatch.setattr(process.sys, "platform", "darwin")
    monkeypatch.setattr(process.ctypes, "CDLL", None)
    process.configure_malloc()
    process.release_memory()
    process.release_mapped_weights()


def test_the_library_changes_no_process_wide_setting(home: Path) -> None:
    code = """
import gc, os
import torch
def settings():
    waiting = [os.environ.get(name) for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")]
    return gc.get_threshold(), gc.get_freeze_count(), waiting, torch.get_num_threads()
before = settings()
from training import Encoder
Encoder.load("scratch:1x32").encode(["a dog"] * 3)
print(settings() == before)"""
    ended = python(code, UNSET)
    assert ended.stdout.splitlines()[-1] == "True", ended.stderr


# ---------------------------------------------------------------- exit

TORN_DOWN = "torn down"  # printed when Python frees this object, which it does at the end of a process
TEARDOWN = f"""
import os
class Noisy:
    def __del__(self):
        os.write(2, b"{TORN_DOWN}")
noisy = Noisy()
"""
BEFORE = f"import atexit, sys, threading, time\nfrom sbert_app.process import exit_now\n{TEARDOWN}"


@pytest.mark.parametrize("code", [0, 2, 130])
def test_the_exit_code_is_kept_and_output_arrives(code: int) -> None:
    ended = python(f"{BEFORE}\nprint('x' * 100_000, end=''); print('why', end='', file=sys.stderr); exit_now({code})")
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "x" * 100_000, "why")


def test_threads_are_joined_and_exit_handlers_run() -> None:
    ended = python(
        f"{BEFORE}\natexit.register(print, 'handler')\n"
        "threading.Thread(target=lambda: (time.sleep(0.3), print('thread'))).start()\n"
        "exit_now(0)"
    )
    assert ended.stdout.split() == ["thread", "handler"]


@pytest.mark.parametrize(("error", "reported"), [("RuntimeError", False), ("KeyError", True)])
def test_work_that_the_end_cuts_off_is_no_error(error: str, reported: bool) -> None:
    """A daemon thread that hands work to an executor until there is an error; the executors close when Python ends."""
    ended = python(
        f"""{BEFORE}
from concurrent.futures import ThreadPoolExecutor
def work():
    executor = ThreadPoolExecutor(1)
    try:
        while True:
            executor.submit(int).result()
    except RuntimeError:
        raise {error} from None
working = threading.Thread(target=work, daemon=True)
working.start()
atexit.register(working.join)
exit_now(0)"""
    )
    assert (ended.returncode, ended.stdout) == (0, "")
    assert ("Exception in thread" in ended.stderr) is reported


def test_a_failing_exit_handler_does_not_keep_the_process() -> None:
    ended = python(f"{BEFORE}\natexit.register(lambda: 1 / 0); exit_now(3)")
    assert ended.returncode == 3
    assert "ZeroDivisionError" in ended.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(("code", "expected"), [(0, 120), (2, 2)])
def test_lost_output_is_no_success(code: int, expected: int) -> None:
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}  # so that the output is written at the end
    with Path("/dev/full").open("w") as full:
        ended = python(f"from sbert_app.process import exit_now; print('x'); exit_now({code})", buffered, stdout=full)
    assert ended.returncode == expected
    assert ended.stderr == "error: the output could not be written: No space left on device\n"


@pytest.mark.parametrize(
    ("arguments", "code"), [(["-m", "sbert_app", "--help"], 0), (["app.py", "--nonsense"], 2), (["-c", "pass"], 0)]
)
def test_the_command_line_and_the_app_skip_the_teardown_of_python(
    tmp_path: Path, arguments: list[str], code: int
) -> None:
    """An object that Python imports at its start reports its teardown; the last case shows that it does."""
    (tmp_path / "sitecustomize.py").write_text(TEARDOWN)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    ended = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == code, ended.stderr
    assert (TORN_DOWN in ended.stderr) == (arguments == ["-c", "pass"])


@pytest.mark.parametrize(
    ("limits", "code"), [("600, 0.3", "while True: pass"), ("0.3, 600", "import threading; threading.Event().wait()")]
)
def test_a_process_ends_whatever_it_computes_or_waits_for(limits: str, code: str) -> None:
    ended = python(f"from sbert_app.process import end_within; end_within({limits})\n{code}")
    assert ended.returncode == 0, ended.stderr
