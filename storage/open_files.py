"""Files opened for reading, bounded in number over all logs of a process."""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from lograft.contract.disk import Disk


class OpenFile:
    """An open file that closes itself when its last user lets go of it.

    A reader keeps it alive through its own reference, so nobody has to count readers before a file is closed, evicted
    or deleted.
    """

    __slots__ = ("descriptor",)

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.descriptor)


class Reader(Hashable, Protocol):
    """Whoever reads a file, and may be told that it was not read for long."""

    def evicted(self) -> None:
        """The file was closed to make room for others."""


class OpenFiles:
    """The most recently read files, kept open. Any thread may call it; no disk access happens under its lock.

    The key is the segment object, not its path: another file may take the path's place (a topic deleted and created
    again), and must never be mistaken for the old one.
    """

    def __init__(self, limit: int = 512) -> None:
        self._limit = limit
        self._files: OrderedDict[Reader, OpenFile] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Reader, disk: Disk, path: Path) -> OpenFile:
        """The open file of ``key``, opened now if need be."""
        with self._lock:
            known = self._files.get(key)
            if known is not None:
                self._files.move_to_end(key)
                return known
        opened = OpenFile(disk.open_for_reading(path))
        with self._lock:
            self._files[key] = opened
            evicted = self._files.popitem(last=False) if len(self._files) > self._limit else None
        if evicted is not None:  # closed outside of the lock
            evicted[0].evicted()
        return opened

    def forget(self, key: Reader) -> None:
        """Let go of the file of ``key``."""
        with self._lock:
            known = self._files.pop(key, None)
        del known


OPEN_FILES = OpenFiles()


@contextmanager
def opened_for_reading(disk: Disk, path: Path) -> Iterator[tuple[int, int]]:
    """Descriptor and size of a file, for one scan."""
    descriptor = disk.open_for_reading(path)
    try:
        yield descriptor, os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
