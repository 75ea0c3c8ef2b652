"""Directories that one process owns: a lock against others, and what it means when the system refuses one."""

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path

from lograft.contract.disk import Disk, is_no_space
from lograft.contract.errors import DirectoryLocked, DirectoryUnusable, DiskFull, LogError, StorageFailed

LOCK_FILE = ".lock"


class DirectoryLock:
    """Keeps other processes out of a directory for as long as this one lives; a crash releases it."""

    def __init__(self, directory: Path) -> None:
        path = directory / LOCK_FILE
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise open_failure(directory, error) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(self._file, 64, 0).decode(errors="replace").strip()
            os.close(self._file)
            raise DirectoryLocked(str(directory), owner or "process unknown") from None
        with suppress(OSError):  # a hint for people, not worth failing for on a full disk
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"pid {os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let others in. The file stays: removing it would race with the next owner."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def open_failure(path: Path, error: OSError) -> LogError:
    """What it means for the user that the system refused something while a directory was opened."""
    if is_no_space(error):
        return DiskFull(str(path))
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return DirectoryUnusable(str(path), f"{error.strerror}: it must be writable")
    return StorageFailed(str(path), str(error))


def create_directory(path: Path, disk: Disk) -> None:
    """Create a directory durably; its parent must be there."""
    try:
        disk.make_directory(path)
    except FileExistsError:
        raise DirectoryUnusable(str(path), "it is not a directory") from None
    except FileNotFoundError:
        raise DirectoryUnusable(str(path), f"{path.parent} does not exist") from None
    except OSError as error:
        raise open_failure(path, error) from error
