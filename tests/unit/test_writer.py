"""Group commit: few syncs for many appends, nothing acknowledged before its sync, and what a failing disk does."""

import errno
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from lograft.contract.batch import Batch
from lograft.contract.disk import Disk
from lograft.contract.errors import DiskFull, OutOfOrderSequence, StorageFailed
from lograft.contract.records import encode_batch
from lograft.storage import Durability, GroupCommitWriter, LogConfig, PartitionLog, PendingAppend

CONFIG = LogConfig(segment_bytes=4096, max_batch_bytes=4096)
PATIENCE_S = 20.0


def batch(value: bytes, **options: int) -> Batch:
    return encode_batch([value], timestamps_ms=0, **options)


def values(log: PartitionLog) -> list[bytes | None]:
    return [record.value for record in log.records()]


def name_of(file: int) -> str:
    return Path(f"/proc/self/fd/{file}").readlink().name


class WatchedDisk(Disk):
    """Counts what is synced; can hold the writer before a sync takes effect; fails as it is told."""

    def __init__(self) -> None:
        self.synced: Counter[str] = Counter()
        self.sync_calls: Counter[str] = Counter()
        self.at_gate = threading.Event()
        self.gate = threading.Event()
        self.gate.set()
        # Space left for segments; None for as much as they like.
        self.space_bytes: int | None = None
        self.fail_write: Callable[[str], OSError | None] = lambda name: None
        self.fail_sync: Callable[[str], OSError | None] = lambda name: None
        self.fail_open: Callable[[Path], OSError | None] = lambda path: None

    @contextmanager
    def held(self) -> Iterator[None]:
        """While inside, the writer stops at its next sync; on the way out it goes on."""
        self.at_gate.clear()
        self.gate.clear()
        try:
            yield
        finally:
            self.gate.set()

    def _pass_gate(self) -> None:
        self.at_gate.set()
        assert self.gate.wait(PATIENCE_S)

    def _sync(self, how: str, name: str) -> None:
        self.sync_calls[how] += 1
        self.synced[name] += 1
        error = self.fail_sync(name)
        if error is not None:
            raise error

    def open_file(self, path: Path, *, create: bool = False) -> int:
        error = self.fail_open(path)
        if error is not None:
            raise error
        return super().open_file(path, create=create)

    def write_some(self, file: int, buffers: Sequence[bytes | memoryview], position: int, flags: int) -> int:
        name = name_of(file)
        error = self.fail_write(name)
        if error is not None:
            raise error
        if name.endswith(".log"):
            if flags & os.RWF_DSYNC:
                self._pass_gate()
            if self.space_bytes is not None:
                buffers = [b"".join(buffers)[: self.space_bytes]]
                if not buffers[0]:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                self.space_bytes -= len(buffers[0])
            if flags & os.RWF_DSYNC:
                self._sync("durable write", name)
        return super().write_some(file, buffers, position, flags)

    def sync_file(self, file: int) -> None:
        name = name_of(file)
        if name.endswith(".log"):
            self._pass_gate()
        self._sync("file", name)
        super().sync_file(file)

    def sync_directory(self, path: Path) -> None:
        self._sync("directory", path.name)
        super().sync_directory(path)

    def sync_filesystem(self, directory: int) -> None:
        self._pass_gate()
        self._sync("filesystem", name_of(directory))
        super().sync_filesystem(directory)

    def forget(self) -> None:
        self.synced.clear()
        self.sync_calls.clear()

    def segment_syncs(self) -> int:
        return sum(count for name, count in self.synced.items() if name.endswith(".log"))


@pytest.fixture
def disk() -> WatchedDisk:
    return WatchedDisk()


@pytest.fixture
def log(tmp_path: Path, disk: WatchedDisk) -> Iterator[PartitionLog]:
    """A log that has one record and whose file and directory entry are durable."""
    with PartitionLog.open(tmp_path / "orders-0", CONFIG, disk=disk, now_ms=lambda: 1000) as opened:
        opened.append(batch(b"first"))
        opened.flush()
        disk.forget()
        disk.at_gate.clear()
        yield opened
        disk.gate.set()


def queue_behind(log: PartitionLog, disk: WatchedDisk, batches: Sequence[Batch]) -> list[PendingAppend]:
    """Submit one append, and the others while its sync is held: they form one group."""
    with disk.held():
        pending = [log.submit(batch(b"holder"))]
        assert disk.at_gate.wait(PATIENCE_S)
        pending += [log.submit(one) for one in batches]
    return pending


def reopened(log: PartitionLog, folder: Path) -> PartitionLog:
    """The files as they are this moment, opened as after a crash."""
    copy = folder / "crashed" / log.path.name
    shutil.copytree(log.path, copy)
    return PartitionLog.open(copy, CONFIG)


# --- group commit


@pytest.mark.requirement("R6")
def test_appends_when_queued_during_a_sync_then_share_the_next_one(log: PartitionLog, disk: WatchedDisk) -> None:
    groups = log.writer.groups
    pending = queue_behind(log, disk, [batch(b"%d" % number) for number in range(20)])
    for append in pending:
        append.wait(PATIENCE_S)
    assert disk.segment_syncs() == 2
    assert log.writer.groups - groups == 2
    assert values(log) == [b"first", b"holder", *(b"%d" % number for number in range(20))]


@pytest.mark.requirement("R9")
def test_append_when_its_sync_has_not_returned_then_is_not_done_and_not_readable(
    log: PartitionLog, disk: WatchedDisk
) -> None:
    with disk.held():
        pending = log.submit(batch(b"second"))
        assert disk.at_gate.wait(PATIENCE_S)
        assert not pending.done
        assert (log.flushed_end_offset, log.high_watermark, log.log_end_offset) == (1, 1, 2)
        assert values(log) == [b"first"]
        assert log.read(1) == b""
        with pytest.raises(TimeoutError, match="may still become so"):
            pending.wait(0.001)
    assert pending.wait(PATIENCE_S).done
    assert pending.error is None
    assert values(log) == [b"first", b"second"]


def test_append_when_a_repeat_is_sent_before_the_sync_then_both_wait_for_it(
    log: PartitionLog, disk: WatchedDisk
) -> None:
    with disk.held():
        first = log.submit(batch(b"once", producer_id=7))
        assert disk.at_gate.wait(PATIENCE_S)
        again = log.submit(batch(b"once", producer_id=7))
        assert again.duplicate
        assert not again.done
    assert again.wait(PATIENCE_S).base_offset == first.base_offset == 1
    assert first.done


def test_append_when_file_is_new_then_its_directory_is_synced_once(tmp_path: Path) -> None:
    disk = WatchedDisk()
    with PartitionLog.open(tmp_path / "new-0", CONFIG, disk=disk) as log:
        disk.forget()
        log.append(batch(b"a"))
        assert disk.sync_calls == {"durable write": 1, "directory": 1}
        assert disk.synced["new-0"] == 1
        log.append(batch(b"b"))
        assert disk.synced["new-0"] == 1


def test_appends_when_durability_is_os_then_wait_for_no_sync(tmp_path: Path) -> None:
    disk = WatchedDisk()
    config = LogConfig(durability=Durability.OS)
    with PartitionLog.open(tmp_path / "fast-0", config, disk=disk) as log:
        disk.forget()
        with disk.held():
            for number in range(5):
                log.append(batch(b"%d" % number), timeout_s=PATIENCE_S)
            assert disk.segment_syncs() == 0
            assert len(values(log)) == 5
    # Closing in good order vouches for the bytes, so it syncs them.
    assert disk.segment_syncs() == 1


@contextmanager
def several(tmp_path: Path, disk: WatchedDisk, count: int, sync_filesystem_from: int) -> Iterator[list[PartitionLog]]:
    """Logs of one disk, each with a first record."""
    writer = GroupCommitWriter(tmp_path, disk, sync_filesystem_from=sync_filesystem_from)
    logs = [PartitionLog.open(tmp_path / f"many-{n}", CONFIG, disk=disk, writer=writer) for n in range(count)]
    try:
        for log in logs:
            log.append(batch(b"first"))
        writer.drain()
        disk.forget()
        yield logs
    finally:
        disk.gate.set()
        for log in logs:
            log.close()
        writer.close()


def append_to_all(logs: list[PartitionLog], disk: WatchedDisk) -> list[PendingAppend]:
    """One group that touches every log."""
    with disk.held():
        holder = logs[0].submit(batch(b"holder"))
        assert disk.at_gate.wait(PATIENCE_S)
        pending = [log.submit(batch(b"second")) for log in logs]
    holder.wait(PATIENCE_S)
    return pending


@pytest.mark.parametrize(
    ("count", "threshold", "expected"),
    [(2, 3, {"file": 2}), (3, 3, {"filesystem": 1}), (5, 3, {"filesystem": 1}), (5, 0, {"file": 5})],
)
def test_group_when_it_touches_many_files_then_one_sync_of_the_file_system_serves_all(
    tmp_path: Path, disk: WatchedDisk, count: int, threshold: int, expected: dict[str, int]
) -> None:
    with several(tmp_path, disk, count, threshold) as logs:
        for append in append_to_all(logs, disk):
            append.wait(PATIENCE_S)
        assert disk.sync_calls == {"durable write": 1, **expected}  # the first is the holder's
        assert [values(log)[-1] for log in logs] == [b"second"] * count


def test_group_when_files_are_new_then_their_directories_count_as_dirty(tmp_path: Path, disk: WatchedDisk) -> None:
    with several(tmp_path, disk, 2, 4) as logs:
        for log in logs:
            log.roll()
        logs[0].flush()
        disk.forget()
        disk.at_gate.clear()
        with disk.held():
            pending = [log.submit(batch(b"second")) for log in logs]
            assert disk.at_gate.wait(PATIENCE_S)
        for append in pending:
            append.wait(PATIENCE_S)
        logs[0].flush()
        # Two files and two directories: in one group a sync of the file system, in two groups one by one.
        one_group = {"filesystem": 1}
        two_groups = {"durable write": 2, "directory": 2}
        assert disk.sync_calls in (one_group, two_groups)


def test_on_group_when_a_group_is_over_then_is_called_with_appends_that_are_done(tmp_path: Path) -> None:
    seen: list[tuple[str, list[tuple[int, bool]]]] = []

    def note(appends: Sequence[PendingAppend]) -> None:
        thread = threading.current_thread().name
        seen.append((thread, [(append.base_offset, append.done) for append in appends]))

    disk = WatchedDisk()
    writer = GroupCommitWriter(tmp_path, disk, on_group=note)
    with PartitionLog.open(tmp_path / "orders-0", CONFIG, disk=disk, writer=writer) as log:
        for append in queue_behind(log, disk, [batch(b"a"), batch(b"b")]):
            append.wait(PATIENCE_S)
        log.flush()
    writer.close()
    assert [appends for _, appends in seen] == [[(0, True)], [(1, True), (2, True)]]
    assert {thread for thread, _ in seen} == {f"lograft-writer-{tmp_path.name}"}


def test_on_group_when_it_raises_then_the_disk_is_closed_for_writing_and_nobody_hangs(tmp_path: Path) -> None:
    def broken(appends: Sequence[PendingAppend]) -> None:
        raise RuntimeError("a bug in the owner")

    writer = GroupCommitWriter(tmp_path, on_group=broken)
    with PartitionLog.open(tmp_path / "orders-0", CONFIG, writer=writer) as log:
        assert log.append(batch(b"a"), timeout_s=PATIENCE_S).error is None
        with pytest.raises(StorageFailed, match="a bug in the owner"):
            log.flush()
        with pytest.raises(StorageFailed):
            log.submit(batch(b"b"))
        assert values(log) == [b"a"]
    writer.close()


def test_close_when_appends_are_queued_then_finishes_them(tmp_path: Path, disk: WatchedDisk) -> None:
    log = PartitionLog.open(tmp_path / "orders-0", CONFIG, disk=disk)
    pending = [log.submit(batch(b"%d" % number)) for number in range(50)]
    log.close()
    assert all(append.done and append.error is None for append in pending)
    with PartitionLog.open(tmp_path / "orders-0", CONFIG) as again:
        assert again.recovery.was_clean
        assert len(values(again)) == 50


# --- a disk that fails


def io_error() -> OSError:
    return OSError(errno.EIO, os.strerror(errno.EIO))


def of_segments(error: Callable[[], OSError]) -> Callable[[str], OSError | None]:
    return lambda name: error() if name.endswith(".log") else None


@pytest.mark.requirement("R27")
@pytest.mark.parametrize("what", ["fail_sync", "fail_write"])
def test_disk_when_a_sync_or_write_fails_then_every_waiter_is_told_and_nothing_is_tried_again(
    log: PartitionLog, disk: WatchedDisk, tmp_path: Path, what: str
) -> None:
    with disk.held():
        pending = [log.submit(batch(b"holder"))]
        assert disk.at_gate.wait(PATIENCE_S)
        pending += [log.submit(batch(b"lost %d" % number)) for number in range(5)]
        setattr(disk, what, of_segments(io_error))
    failed_from = 0 if what == "fail_sync" else 1
    for append in pending[failed_from:]:
        with pytest.raises(StorageFailed, match="closed for writing") as caught:
            append.wait(PATIENCE_S)
        assert caught.value.path == str(log.path)
        assert append.done
    syncs = disk.segment_syncs()
    assert syncs == 1  # the one that failed, or the holder's
    setattr(disk, what, lambda name: None)  # the disk pretends to be well again
    with pytest.raises(StorageFailed):
        log.submit(batch(b"later"))
    with pytest.raises(StorageFailed):
        log.submit_replica(b"")
    with pytest.raises(StorageFailed):
        log.flush()
    with pytest.raises(StorageFailed):
        log.truncate(0, unclean=True)
    safe = [b"first"] if what == "fail_sync" else [b"first", b"holder"]
    assert values(log) == safe
    log.close()
    assert disk.segment_syncs() == syncs
    with PartitionLog.open(tmp_path / "orders-0", CONFIG) as again:
        assert values(again) == safe
        assert not again.recovery.was_clean
        again.append(batch(b"next"))
        assert values(again) == [*safe, b"next"]


@pytest.mark.requirement("R27")
def test_disk_when_a_sync_fails_for_one_of_several_logs_then_none_in_the_group_is_acknowledged(
    tmp_path: Path, disk: WatchedDisk
) -> None:
    with several(tmp_path, disk, 3, 0) as logs:
        calls: list[str] = []

        def second_fails(name: str) -> OSError | None:
            if not name.endswith(".log"):
                return None
            calls.append(name)
            return io_error() if len(calls) == 3 else None  # the holder's, then the second of three

        disk.fail_sync = second_fails
        pending = append_to_all(logs, disk)
        for append in pending:
            with pytest.raises(StorageFailed):
                append.wait(PATIENCE_S)
        assert len(calls) == 3
        assert [values(log) for log in logs] == [[b"first", b"holder"], [b"first"], [b"first"]]
        disk.fail_sync = lambda name: None
    for number, expected in enumerate([[b"first", b"holder"], [b"first"], [b"first"]]):
        with PartitionLog.open(tmp_path / f"many-{number}", CONFIG) as again:
            assert values(again) == expected


def test_disk_when_the_file_system_sync_fails_then_none_is_acknowledged(tmp_path: Path, disk: WatchedDisk) -> None:
    with several(tmp_path, disk, 3, 2) as logs:
        disk.fail_sync = lambda name: io_error() if name == tmp_path.name else None
        for append in append_to_all(logs, disk):
            with pytest.raises(StorageFailed):
                append.wait(PATIENCE_S)
        assert disk.sync_calls["filesystem"] == 1
        disk.fail_sync = lambda name: None
        assert [len(values(log)) for log in logs] == [2, 1, 1]


def test_disk_when_the_directory_sync_of_a_new_file_fails_then_is_closed(tmp_path: Path, disk: WatchedDisk) -> None:
    with PartitionLog.open(tmp_path / "new-0", CONFIG, disk=disk) as log:
        disk.fail_sync = lambda name: io_error() if name == "new-0" else None
        with pytest.raises(StorageFailed):
            log.append(batch(b"a"), timeout_s=PATIENCE_S)
        assert values(log) == []


@pytest.mark.requirement("R27")
def test_disk_when_a_sync_fails_then_closes_even_if_the_failure_cannot_be_noted(
    log: PartitionLog, disk: WatchedDisk
) -> None:
    disk.fail_sync = lambda name: io_error()
    disk.fail_write = lambda name: io_error()
    with pytest.raises(StorageFailed):
        log.append(batch(b"lost"), timeout_s=PATIENCE_S)
    assert values(log) == [b"first"]


# --- a disk that is full


def no_space() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.requirement("R27")
@pytest.mark.parametrize("left", [0, 1, 60, 150, 400])
def test_append_when_disk_is_full_then_is_refused_undone_and_works_again_with_space(
    log: PartitionLog, disk: WatchedDisk, tmp_path: Path, left: int
) -> None:
    size = log.size_bytes
    disk.space_bytes = left
    with pytest.raises(DiskFull) as caught:
        log.append(batch(b"x" * 500), timeout_s=PATIENCE_S)
    assert caught.value.path == str(log.segments[-1].path)
    # Also what a short write had taken is gone, durably.
    assert log.segments[-1].path.stat().st_size == size
    assert disk.sync_calls["file"] == 1
    assert values(log) == [b"first"]
    with reopened(log, tmp_path) as crashed:
        assert values(crashed) == [b"first"]
        assert not crashed.recovery.cuts
    disk.space_bytes = None
    assert log.append(batch(b"second"), timeout_s=PATIENCE_S).base_offset == 1
    assert values(log) == [b"first", b"second"]
    assert log.size_bytes == log.segments[-1].path.stat().st_size


def test_append_when_quota_is_used_up_then_is_refused_like_a_full_disk(log: PartitionLog, disk: WatchedDisk) -> None:
    disk.fail_write = of_segments(lambda: OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)))
    with pytest.raises(DiskFull):
        log.append(batch(b"x"), timeout_s=PATIENCE_S)


@pytest.mark.requirement("R3", "R27")
def test_appends_when_an_earlier_one_of_the_group_is_refused_then_are_refused_too(
    log: PartitionLog, disk: WatchedDisk
) -> None:
    with disk.held():
        holder = log.submit(batch(b"holder"))
        assert disk.at_gate.wait(PATIENCE_S)
        large, small = log.submit(batch(b"x" * 1000)), log.submit(batch(b"y"))
        disk.space_bytes = holder.size_bytes + 500
    assert holder.wait(PATIENCE_S).base_offset == 1
    for append in (large, small):
        with pytest.raises(DiskFull):
            append.wait(PATIENCE_S)
    disk.space_bytes = None
    assert log.append(batch(b"next")).base_offset == 2
    assert values(log) == [b"first", b"holder", b"next"]


@pytest.mark.requirement("R3", "R27")
def test_appends_when_submitted_before_the_refusal_is_known_then_leave_no_gap(
    log: PartitionLog, disk: WatchedDisk
) -> None:
    disk.space_bytes = 0
    with disk.held():
        refused = log.submit(batch(b"refused"))
        assert disk.at_gate.wait(PATIENCE_S)  # its write has begun
        behind = [log.submit(batch(b"behind %d" % number)) for number in range(3)]
        assert [append.base_offset for append in behind] == [2, 3, 4]
    for append in (refused, *behind):
        with pytest.raises(DiskFull):
            append.wait(PATIENCE_S)
    disk.space_bytes = None
    assert log.append(batch(b"next")).base_offset == 1
    assert [(record.offset, record.value) for record in log.records()] == [(0, b"first"), (1, b"next")]


@pytest.mark.requirement("R15", "R27")
def test_idempotent_producer_when_its_batches_were_refused_then_may_send_them_again(
    log: PartitionLog, disk: WatchedDisk
) -> None:
    batches = [batch(b"%d" % number, producer_id=7, base_sequence=number) for number in range(4)]
    log.append(batches[0])
    disk.space_bytes = 0
    with disk.held():
        pending = [log.submit(one) for one in batches[1:3]]
    for append in pending:
        with pytest.raises(DiskFull):
            append.wait(PATIENCE_S)
    disk.space_bytes = None
    with pytest.raises(OutOfOrderSequence) as caught:
        log.append(batches[2])
    assert caught.value.expected == 1
    assert log.append(batches[0]).duplicate
    appended = [log.append(one) for one in batches[1:]]
    assert [(append.base_offset, append.duplicate) for append in appended] == [(2, False), (3, False), (4, False)]


def test_leader_epoch_when_its_first_batch_was_refused_then_still_begins_at_the_end_of_the_log(
    log: PartitionLog, disk: WatchedDisk
) -> None:
    log.note_leader_epoch(5)
    disk.space_bytes = 0
    with pytest.raises(DiskFull):
        log.append(batch(b"x"), leader_epoch=5, timeout_s=PATIENCE_S)
    disk.space_bytes = None
    log.append(batch(b"y"), leader_epoch=5)
    assert log.epochs.end_of(5, log.log_end_offset) == (5, 2)
    assert log.epochs.epoch_at(1) == 5


@pytest.mark.requirement("R27")
@pytest.mark.parametrize("how", ["no inode", "no block", "short"])
def test_roll_when_disk_is_full_at_that_moment_then_goes_on_once_there_is_space(
    log: PartitionLog, disk: WatchedDisk, tmp_path: Path, how: str
) -> None:
    log.append(batch(b"a" * 3000))
    if how == "no inode":
        disk.fail_open = lambda path: no_space() if path.suffix == ".log" else None
    else:
        disk.space_bytes = 0 if how == "no block" else 100
    for _ in range(2):
        with pytest.raises(DiskFull):
            log.append(batch(b"b" * 3000), timeout_s=PATIENCE_S)
    assert values(log) == [b"first", b"a" * 3000]
    with reopened(log, tmp_path) as crashed:
        assert values(crashed) == [b"first", b"a" * 3000]
        assert crashed.log_end_offset == 2
    disk.fail_open = lambda path: None
    disk.space_bytes = None
    assert log.append(batch(b"c" * 3000)).base_offset == 2
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    log.close()
    with PartitionLog.open(tmp_path / "orders-0", CONFIG) as again:
        assert again.recovery.was_clean
        assert values(again) == [b"first", b"a" * 3000, b"c" * 3000]


@pytest.mark.requirement("R27")
@pytest.mark.parametrize("fits", [0, 1, 2])
def test_group_when_it_spans_a_roll_and_disk_gets_full_then_a_prefix_of_it_stays(
    log: PartitionLog, disk: WatchedDisk, tmp_path: Path, fits: int
) -> None:
    sizes = [3000, 3000, 3000]
    with disk.held():
        holder = log.submit(batch(b"holder"))
        assert disk.at_gate.wait(PATIENCE_S)
        pending = [log.submit(batch(b"%d" % number * size)) for number, size in enumerate(sizes)]
        disk.space_bytes = holder.size_bytes + sum(append.size_bytes for append in pending[:fits]) + 50
    for append in pending[:fits]:
        append.wait(PATIENCE_S)
    for append in pending[fits:]:
        with pytest.raises(DiskFull):
            append.wait(PATIENCE_S)
    expected = [b"first", b"holder", *(b"%d" % number * 3000 for number in range(fits))]
    assert values(log) == expected
    disk.space_bytes = None
    log.append(batch(b"after"))
    log.flush()
    assert values(log) == [*expected, b"after"]
    assert [record.offset for record in log.records()] == list(range(len(expected) + 1))
    with reopened(log, tmp_path) as crashed:
        assert values(crashed) == [*expected, b"after"]
    log.close()
    with PartitionLog.open(tmp_path / "orders-0", CONFIG) as again:
        assert again.recovery.was_clean
        assert values(again) == [*expected, b"after"]


def test_group_when_one_log_has_no_space_then_the_others_are_written(tmp_path: Path, disk: WatchedDisk) -> None:
    with several(tmp_path, disk, 3, 0) as logs:
        full = logs[1].segments[-1].path

        def full_for_one(file: int, buffers: Sequence[bytes | memoryview], position: int, flags: int) -> int:
            if Path(f"/proc/self/fd/{file}").readlink() == full:
                raise no_space()
            return WatchedDisk.write_some(disk, file, buffers, position, flags)

        disk.write_some = full_for_one  # type: ignore[method-assign]
        pending = append_to_all(logs, disk)
        with pytest.raises(DiskFull):
            pending[1].wait(PATIENCE_S)
        assert [len(values(log)) for log in logs] == [3, 1, 2]
        del disk.write_some
        assert logs[1].append(batch(b"again")).base_offset == 1


@pytest.mark.requirement("R27")
def test_disk_when_a_refused_append_cannot_be_undone_then_is_closed(log: PartitionLog, disk: WatchedDisk) -> None:
    def fails(file: int, size: int) -> None:
        raise io_error()

    disk.truncate = fails  # type: ignore[method-assign]
    disk.space_bytes = 50
    with pytest.raises(StorageFailed):
        log.append(batch(b"x" * 500), timeout_s=PATIENCE_S)
    assert values(log) == [b"first"]


def small_files_full(path: Path) -> OSError | None:
    return no_space() if path.suffix == ".tmp" else None


def test_checkpoint_when_disk_is_full_then_appends_go_on_without(
    log: PartitionLog, disk: WatchedDisk, tmp_path: Path
) -> None:
    disk.fail_open = small_files_full
    log.append(batch(b"second"))
    log.checkpoint()
    log.flush()
    log.append(batch(b"a" * 3000))
    log.append(batch(b"b" * 3000))  # rolls
    log.flush()
    assert len(log.segments) == 2
    with reopened(log, tmp_path) as crashed:
        assert len(values(crashed)) == 4
    disk.fail_open = lambda path: None


@pytest.mark.requirement("R7", "R9", "R27")
@pytest.mark.parametrize("how", ["delete_records", "retention"])
def test_deletion_when_disk_has_no_space_for_the_checkpoint_then_the_log_still_opens_after_a_crash(
    log: PartitionLog, disk: WatchedDisk, tmp_path: Path, how: str
) -> None:
    for number in range(4):
        log.append(batch(b"%d" % number * 3000))
    log.flush()
    kept = values(log)[-1]
    log.reconfigure(LogConfig(segment_bytes=4096, max_batch_bytes=4096, retention_bytes=0))
    disk.fail_open = small_files_full
    if how == "retention":
        log.enforce_retention()
    else:
        with pytest.raises(DiskFull):  # it could not be made durable
            log.delete_records(log.high_watermark - 1)
    log.flush()
    disk.fail_open = lambda path: None
    with reopened(log, tmp_path) as crashed:
        assert values(crashed)[-1] == kept
    # With space again the next turn completes it.
    log.enforce_retention()
    log.flush()
    assert len(list(log.path.glob("*.log"))) == 1
    assert values(log) == [kept]


@pytest.mark.requirement("R27")
def test_close_when_disk_is_full_then_no_bare_system_error_comes_out(log: PartitionLog, disk: WatchedDisk) -> None:
    disk.fail_open = small_files_full
    with suppress(DiskFull):
        log.close()
