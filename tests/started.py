"""The processes that one test has started: other tests of the session may have some that go on."""

import psutil


class StartedProcesses:
    """This process's children, and theirs, that came after this object."""

    def __init__(self) -> None:
        self._here = psutil.Process()
        self._before = set(self._here.children(recursive=True))

    def there(self) -> list[psutil.Process]:
        """Those that are there now, without the one that multiprocessing keeps until Python ends."""
        found = set(self._here.children(recursive=True)) - self._before
        return [child for child in found if _is_there(child)]


def _is_there(child: psutil.Process) -> bool:
    """Whether it is there and not multiprocessing's resource tracker. One that nobody has waited for is there."""
    try:
        return "resource_tracker" not in " ".join(child.cmdline())
    except psutil.ZombieProcess:
        return True
    except psutil.NoSuchProcess:
        return False
