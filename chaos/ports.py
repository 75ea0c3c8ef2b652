"""Ports for processes that a test or a benchmark starts, claimed so that parallel runs never meet.

Outside the range that the kernel hands out for outgoing connections: otherwise a client of some other process may sit
on the port of a server that is just being restarted.
"""

import contextlib
import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import Self

FIRST_PORT = 20_000
LAST_PORT = 29_999
BLOCK = 20


class PortClaim:
    """A block of consecutive ports, ours until `release` or until this process ends."""

    def __init__(self, folder: Path | None = None) -> None:
        """Claim a block. Raises `OSError` if there is none."""
        folder = folder or Path(tempfile.gettempdir()) / f"lograft-ports-{os.getuid()}"
        folder.mkdir(parents=True, exist_ok=True)
        starts = list(range(FIRST_PORT, LAST_PORT + 2 - BLOCK, BLOCK))
        random.shuffle(starts)
        for start in starts:
            file = os.open(folder / f"{start}.claim", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(file)
                continue
            if all(map(_is_free, range(start, start + BLOCK))):
                self._file = file
                self.ports = range(start, start + BLOCK)
                return
            os.close(file)
        raise OSError(f"no {BLOCK} free ports in a row between {FIRST_PORT} and {LAST_PORT}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Give the ports back."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _is_free(port: int) -> bool:
    with contextlib.closing(socket.socket()) as probe:
        # As servers do: what a connection left in TIME_WAIT does not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
