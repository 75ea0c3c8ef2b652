"""What all tests share: settings of hypothesis, and a look for leaks after each test."""

import gc
import os
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
            target = os.readlink(descriptor)
        except OSError:  # the descriptor of the listing itself
            continue
        if target.removesuffix(" (deleted)").endswith((".log", ".lock", "-0", "-1")):
            found.add(f"{descriptor.name} {target}")
    return found


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """A test closes what it opened: writer threads and files of logs."""
    threads, files = set(threading.enumerate()), _open_logs()
    yield
    gc.collect()
    writers = [thread.name for thread in set(threading.enumerate()) - threads if thread.name.startswith("lograft")]
    assert not writers, "writer threads left running"
    assert _open_logs() <= files, "files of logs left open"
