"""The few file operations that durability rests on, in one place.

Everything that must survive a crash is written through a `Disk`: the storage's segments and checkpoints and the
quorum's journal alike. Tests and chaos subclass it to drop, tear or fail what was not synced. It adds nothing to the
system calls but the loops that POSIX leaves to the caller, and it never retries a failed sync: after one the kernel may
have dropped the data and report success the next time.
"""

import ctypes
import errno
import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_logger = logging.getLogger(__name__)
# The kernel takes at most this many buffers in one write.
MAX_BUFFERS = os.sysconf("SC_IOV_MAX")
# Looked up among all loaded libraries, not in libc alone, so that a preloaded shim sees the call.
_libc = ctypes.CDLL(None, use_errno=True)


def is_no_space(error: OSError) -> bool:
    """Whether a write failed for want of space, which is refused and forgotten, unlike any other failure."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def going_on_without_space(path: Path) -> Iterator[None]:
    """For what can be done without, as a cache or a hint: a full disk is logged, any other failure goes on its way."""
    try:
        yield
    except OSError as error:
        if not is_no_space(error):
            raise
        _logger.warning("no space left for a small file of %s: going on without", path)


class Disk:
    """The real disk."""

    def open_file(self, path: Path, *, create: bool = False) -> int:
        """Open for reading and writing; with ``create``, a file that must not exist yet."""
        flags = os.O_RDWR | os.O_CLOEXEC
        return os.open(path, flags | os.O_CREAT | os.O_EXCL if create else flags, 0o644)

    def open_for_reading(self, path: Path) -> int:
        """Open for reading only."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, file: int, size: int, position: int) -> bytes:
        """Up to ``size`` bytes at ``position``; fewer only at the end of the file."""
        data = os.pread(file, size, position)
        while len(data) < size:
            more = os.pread(file, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def write(self, file: int, buffers: Sequence[bytes], position: int, *, durable: bool = False) -> None:
        """Write all of ``buffers`` one after the other at ``position``; with ``durable``, as `sync_file` makes it.

        A durable write is one system call instead of two. It covers only the bytes it writes.
        """
        flags = os.RWF_DSYNC if durable else 0
        pending: list[bytes | memoryview] = list(buffers)
        while pending:
            chunk = pending[:MAX_BUFFERS]
            size = sum(map(len, chunk))
            written = self.write_some(file, chunk, position, flags)
            position += written
            if written == size:
                del pending[:MAX_BUFFERS]
                continue
            if not written:
                # POSIX does not rule it out; trying again could go on forever.
                raise OSError(errno.EIO, "the file took none of the bytes")
            while written >= len(pending[0]):
                written -= len(pending.pop(0))
            pending[0] = memoryview(pending[0])[written:]

    def write_some(self, file: int, buffers: Sequence[bytes | memoryview], position: int, flags: int) -> int:
        """One ``pwritev``: how many bytes were taken."""
        return os.pwritev(file, buffers, position, flags)

    def truncate(self, file: int, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        os.ftruncate(file, size)

    def sync_file(self, file: int) -> None:
        """Make the file's data, and the size needed to read it, durable."""
        os.fdatasync(file)

    def sync_directory(self, path: Path) -> None:
        """Make the entries of a directory durable: files created in it, renamed, removed."""
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def sync_filesystem(self, directory: int) -> None:
        """Make everything on the file system of an open directory durable, in one call.

        Errors of earlier writes are reported since Linux 5.8, once per open file description: keep ``directory`` open.
        """
        if _libc.syncfs(directory) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def sync_filesystem_reports_errors(self, path: Path) -> bool:
        """Whether a failed write cannot go unnoticed by `sync_filesystem` on the file system that holds ``path``.

        Linux passes on the errors of the file system's own sync since 5.17. Overlay, network and user-space file
        systems may not; those that do are named.
        """
        release = re.match(r"(\d+)\.(\d+)", os.uname().release)
        if release is None or (int(release[1]), int(release[2])) < (5, 17):
            return False
        device = path.stat().st_dev
        wanted = f"{os.major(device)}:{os.minor(device)}"
        try:
            mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        except OSError:
            return False
        kinds = {fields[fields.index("-") + 1] for fields in mounts if fields[2] == wanted and "-" in fields}
        return bool(kinds) and kinds <= {"ext4", "xfs"}

    def rename(self, source: Path, target: Path) -> None:
        """Rename, replacing the target. Durable after `sync_directory`."""
        source.replace(target)

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there. Durable after `sync_directory`."""
        path.unlink(missing_ok=True)

    def make_directory(self, path: Path) -> None:
        """Create a directory, with its entry durable in its parent."""
        path.mkdir()
        self.sync_directory(path.parent)

    def replace_file(self, path: Path, content: bytes) -> None:
        """Replace a small file atomically and durably: readers see the old or the new content, never a mix."""
        temporary = path.with_name(path.name + ".tmp")
        self.remove(temporary)  # left behind by a crash
        file = self.open_file(temporary, create=True)
        try:
            self.write(file, [content], 0)
            self.sync_file(file)
        finally:
            os.close(file)
        self.rename(temporary, path)
        # The rename itself lives in the directory: without this sync it can be lost.
        self.sync_directory(path.parent)
