"""With many dirty files the writer has the disk sync the first while it writes the others."""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from lograft.contract.disk import Disk
from lograft.contract.errors import StorageFailed
from lograft.contract.records import encode_batch
from lograft.storage import GroupCommitWriter, PartitionLog, PendingAppend

FILES = 8
BATCH = encode_batch([b"value"], timestamps_ms=1)


class Watched(Disk):
    """Holds the first write until told to go on, counts the syncs of the file system, and fails one of them."""

    def __init__(self, *, failing_sync: int = 0) -> None:
        self.writing, self.go_on = threading.Event(), threading.Event()
        self.syncs = 0
        self.failing_sync = failing_sync

    def write(self, file: int, buffers, position: int, *, durable: bool = False) -> None:  # type: ignore[no-untyped-def]
        self.writing.set()
        assert self.go_on.wait(30)
        super().write(file, buffers, position, durable=durable)

    def sync_filesystem_reports_errors(self, path: Path) -> bool:
        return True

    def sync_filesystem(self, directory: int) -> None:
        self.syncs += 1
        if self.syncs == self.failing_sync:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync_filesystem(directory)


@contextmanager
def many_logs(folder: Path, disk: Watched) -> Iterator[list[PartitionLog]]:
    disk.go_on.set()  # opening writes too
    writer = GroupCommitWriter(folder, disk, early_sync_files=2)
    with ExitStack() as stack:
        stack.callback(writer.close)
        logs = [PartitionLog.open(folder / f"t-{number}", writer=writer, disk=disk) for number in range(FILES)]
        for log in logs:
            stack.callback(log.close)
            log.append(BATCH)  # from now on no directory needs a sync
        disk.go_on.clear()
        disk.writing.clear()
        disk.syncs = 0
        yield logs
        disk.go_on.set()


def appended_in_one_group(logs: list[PartitionLog], disk: Watched) -> list[PendingAppend]:
    """One append to each log, all of them in the group after the one that holds the writer."""
    first = logs[0].submit(BATCH)
    assert disk.writing.wait(30)
    pending = [log.submit(BATCH) for log in logs]
    disk.go_on.set()
    return [first, *pending]


def test_group_when_it_has_many_files_then_is_synced_while_it_is_written_and_once_more_at_the_end(
    tmp_path: Path,
) -> None:
    disk = Watched()
    with many_logs(tmp_path, disk) as logs:
        for append in appended_in_one_group(logs, disk):
            append.wait(30)
        assert disk.syncs >= 2
        assert all(log.flushed_end_offset == log.log_end_offset for log in logs)


@pytest.mark.requirement("R27")
def test_group_when_an_early_sync_fails_then_nothing_of_it_is_acknowledged(tmp_path: Path) -> None:
    disk = Watched(failing_sync=1)
    with many_logs(tmp_path, disk) as logs:
        first, *pending = appended_in_one_group(logs, disk)
        first.wait(30)
        for append in pending:
            with pytest.raises(StorageFailed):
                append.wait(30)
        assert all(log.flushed_end_offset <= 2 for log in logs)
        with pytest.raises(StorageFailed):
            logs[1].submit(BATCH)
