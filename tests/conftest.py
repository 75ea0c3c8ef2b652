"""What all tests share: settings of hypothesis, and a look for leaks after each test."""

import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "lograft",
    deadline=None,  # the machine is noisy: no timed asserts
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("lograft")


def _open_logs() -> set[str]:
    """Files of logs that this process has open."""
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except OSError:  # the descriptor of the listing itself
            continue
        if target.removesuffix(" (deleted)").endswith((".log", ".lock", "-0", "-1")):
            found.add(f"{descriptor.name} {target}")
    return found


def _left_over(threads: set[threading.Thread], files: set[str]) -> list[str]:
    writers = [thread.name for thread in set(threading.enumerate()) - threads if thread.name.startswith("lograft")]
    return writers + sorted(_open_logs() - files)


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """A test closes what it opened: writer threads and files of logs."""
    threads, files = set(threading.enumerate()), _open_logs()
    yield
    if _left_over(threads, files):
        gc.collect()  # what an exception's traceback still holds is no leak
        assert _left_over(threads, files) == []
