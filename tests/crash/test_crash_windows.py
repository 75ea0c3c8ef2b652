"""Crashes between two steps of one change: each window once lost, resurrected or falsely condemned something."""

import dataclasses
import errno
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import pytest

from lograft.contract.batch import Batch, stamped
from lograft.contract.disk import Disk
from lograft.contract.errors import DiskFull, StorageFailed
from lograft.contract.records import decode_stored, encode_batch, encode_compacted
from lograft.storage import CleanupPolicy, LogConfig, PartitionLog
from lograft.storage.compaction import compact, install, plan, run

NOW_MS = 1_700_000_000_000
SMALL = LogConfig(segment_bytes=1024, max_batch_bytes=1024, retention_ms=None)
Crash = Callable[[PartitionLog], Path]


def batch(value: bytes | None, key: bytes | None = None) -> Batch:
    return encode_batch([value], keys=[key], timestamps_ms=NOW_MS)


def values(log: PartitionLog) -> list[bytes | None]:
    return [record.value for record in log.records()]


@pytest.fixture
def crash(tmp_path: Path) -> Crash:
    """The files as they are this moment, as another process would find them."""
    numbers = count()

    def copy(log: PartitionLog) -> Path:
        target = tmp_path / f"crash{next(numbers)}" / log.path.name
        shutil.copytree(log.path, target)
        return target

    return copy


class FullForSmallFiles(Disk):
    """A disk without space for checkpoints while ``full``, that fails writes to segments while ``broken``."""

    full = False
    broken = False

    def replace_file(self, path: Path, content: bytes) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().replace_file(path, content)

    def write_some(self, file: int, buffers: Sequence[bytes | memoryview], position: int, flags: int) -> int:
        if self.broken and Path(f"/proc/self/fd/{file}").readlink().suffix == ".log":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().write_some(file, buffers, position, flags)


@pytest.mark.requirement("R9", "R27")
def test_log_when_opened_without_space_after_a_failed_sync_then_never_cuts_what_it_acks_later(
    tmp_path: Path, crash: Crash
) -> None:
    disk, path = FullForSmallFiles(), tmp_path / "t-0"
    with PartitionLog.open(path, disk=disk) as log:
        log.append(batch(b"safe"))
        disk.broken = True
        with pytest.raises(StorageFailed):
            log.append(batch(b"lost"))
    disk.broken, disk.full = False, True
    # The word on disk is "cut everything above": as long as it cannot be taken back, nothing may be promised.
    with pytest.raises(DiskFull):
        PartitionLog.open(path, disk=disk)
    disk.full = False
    with PartitionLog.open(path, disk=disk) as log:
        log.append(batch(b"acked"))
        after = crash(log)
    with PartitionLog.open(after) as log:
        assert values(log) == [b"safe", b"acked"]


def test_restart_in_mid_segment_when_interrupted_then_opens(tmp_path: Path, crash: Crash) -> None:
    images: list[Path] = []

    class Watched(Disk):
        def remove(self, path: Path) -> None:
            if path.suffix == ".log":
                images.append(crash(log))
            super().remove(path)

    config = dataclasses.replace(SMALL, segment_bytes=5000)
    with PartitionLog.open(tmp_path / "t-0", config, disk=Watched()) as log:
        for number in range(12):
            log.append(batch(b"v" * 500), leader_epoch=number // 3)
        log.delete_records(3)
        assert len(log.segments) > 1
        log.truncate(2)
        assert (log.log_start_offset, log.log_end_offset) == (3, 3)
    assert images
    for image in images:
        with PartitionLog.open(image, config) as log:
            assert log.log_start_offset == 3


@pytest.mark.requirement("R7")
def test_retention_when_the_disk_is_slow_then_no_crash_finds_a_log_without_its_beginning(
    tmp_path: Path, crash: Crash
) -> None:
    images: list[Path] = []
    writing, go_on = threading.Event(), threading.Event()

    class Slow(Disk):
        holds = False

        def write_some(self, file: int, buffers: Sequence[bytes | memoryview], position: int, flags: int) -> int:
            if self.holds:
                self.holds = False
                writing.set()
                go_on.wait(30)
            return super().write_some(file, buffers, position, flags)

        def remove(self, path: Path) -> None:
            super().remove(path)
            if path.suffix == ".log":
                images.append(crash(log))

    disk = Slow()
    config = dataclasses.replace(SMALL, retention_bytes=3000)
    with PartitionLog.open(tmp_path / "t-0", config, disk=disk) as log:
        for _ in range(12):
            log.append(batch(b"v" * 400))
        log.flush()
        disk.holds = True
        log.submit(batch(b"x"))
        assert writing.wait(30)
        # Two turns before the writer comes to the first: each removes only what its own checkpoint speaks of.
        assert log.enforce_retention() > 0
        log.reconfigure(dataclasses.replace(config, retention_bytes=500))
        assert log.enforce_retention() > 0
        go_on.set()
        log.flush()
    assert images
    for image in images:
        PartitionLog.open(image, config).close()


def test_delete_records_when_refused_for_space_then_a_repeat_is_refused_until_it_is_durable(
    tmp_path: Path, crash: Crash
) -> None:
    disk = FullForSmallFiles()
    with PartitionLog.open(tmp_path / "t-0", SMALL, disk=disk) as log:
        for _ in range(10):
            log.append(batch(b"v" * 400))
        log.flush()
        disk.full = True
        for _ in range(2):
            with pytest.raises(DiskFull):
                log.delete_records(6)
        PartitionLog.open(crash(log), SMALL).close()
        disk.full = False
        assert log.delete_records(6) == 6
        after = crash(log)
    with PartitionLog.open(after, SMALL) as log:
        assert log.log_start_offset == 6
        assert log.segments[0].next_offset > 6


@pytest.mark.requirement("R8")
def test_compaction_when_a_group_was_deleted_meanwhile_then_no_tombstone_of_a_later_one_is_dropped(
    tmp_path: Path,
) -> None:
    config = LogConfig(
        cleanup_policy=CleanupPolicy.COMPACT_DELETE,
        segment_bytes=3000,
        max_batch_bytes=2500,
        delete_retention_ms=1000,
        retention_ms=None,
    )
    with PartitionLog.open(tmp_path / "t-0", config, now_ms=lambda: NOW_MS + 10**6) as log:

        def replicate(value: bytes | None, key: bytes, *, delete_horizon_ms: int = 0) -> None:
            header, records = batch(value, key)
            copied = Batch(stamped(header, log.log_end_offset, 1, NOW_MS), records)
            if delete_horizon_ms:  # the leader's compaction has seen the tombstone before
                copied = encode_compacted(copied.header, decode_stored(copied), delete_horizon_ms=delete_horizon_ms)
            for append in log.submit_replica(copied.frame()):
                append.wait()

        replicate(b"f" * 1200, b"filler")
        log.roll()
        replicate(b"value", b"K")
        replicate(b"f" * 1000, b"filler2")
        log.roll()
        replicate(b"x" * 1800, b"other")
        replicate(None, b"K", delete_horizon_ms=NOW_MS + 1)
        replicate(b"last", b"last")
        log.roll()
        replicate(b"end", b"end")
        log.flush()
        job = plan(log, force=True)
        assert job is not None
        result = run(job)
        assert [group.replaced_bases for group in result.groups] == [(0, 1), (3,)]
        log.delete_records(1)  # takes a segment of the first group away
        install(log, result)
        newest = {record.key: record.value for record in log.records()}
        assert newest[b"K"] is None
        log.flush()
        compact(log, force=True)
        assert not any(record.key == b"K" for record in log.records())
