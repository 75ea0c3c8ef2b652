"""The group-commit writer: one thread per disk turns whatever has queued up into few large writes and one sync.

Owners of logs submit `PendingAppend`s and never block. The writer takes all that is waiting, writes each file's share
with one ``pwritev``, makes it durable (``fdatasync`` per file, or one ``syncfs`` when many files are dirty), and only
then marks the appends done. Nothing is acknowledged before the sync that covers it.

With one dirty file, write and sync are one system call (``RWF_DSYNC``): the thread needs the interpreter once less.

- No space: the file is cut back to where the refused appends began, durably, and they fail with `DiskFull`.
- Any other failure is final: the disk is closed for writing, and nothing is retried (`Disk` says why).
"""

import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol

from lograft.contract.disk import MAX_BUFFERS, Disk, going_on_without_space, is_no_space
from lograft.contract.errors import DiskFull, LogError, StorageFailed
from lograft.storage.segment import SegmentFile

_logger = logging.getLogger(__name__)
# From so many dirty files on, one `syncfs` is faster than a sync for each: measured 0.8 against 0.5 ms for 3 files,
# 256 against 24 ms for 1,000 (docs/decisions/0005-sync-strategy.md).
SYNC_FILESYSTEM_FROM = 4
# With many files, one sync after so many of them has the disk work while the next are written.
EARLY_SYNC_FILES = 48
# Bounds how long the first in a group waits for the last; bytes are bounded by whoever submits.
_MAX_GROUP_JOBS = 4096


class WritableLog(Protocol):
    """What the writer needs of a log. The writer thread calls it."""

    # Counts the roll-backs: what was submitted before one must not be written after it.
    generation: int
    # Set by the writer when it refused an append, cleared by the owner's roll-back.
    refused: bool

    @property
    def syncs_before_ack(self) -> bool:
        """Whether appends wait for the disk."""

    @property
    def flushed_end_offset(self) -> int:
        """Everything below was acknowledged."""

    def note_flushed(self, end_offset: int) -> None:
        """Everything below ``end_offset`` may be acknowledged."""

    def note_sync_failure(self) -> None:
        """A sync that covered this log failed: nothing above what was flushed before may be trusted."""


class PendingAppend:
    """One or more batches on their way to the disk. ``done`` says that it is over; ``error`` how, if not well."""

    __slots__ = (
        "append_timestamp_ms",
        "base_offset",
        "buffers",
        "done",
        "duplicate",
        "error",
        "file",
        "generation",
        "log",
        "next_offset",
        "position",
        "size_bytes",
        "writer",
    )

    def __init__(
        self,
        writer: "GroupCommitWriter",
        log: WritableLog,
        file: SegmentFile,
        position: int,
        buffers: Sequence[bytes],
        *,
        base_offset: int,
        next_offset: int,
        append_timestamp_ms: int = 0,
        duplicate: bool = False,
    ) -> None:
        self.writer = writer
        self.log = log
        self.file = file
        self.position = position
        self.buffers = buffers
        self.size_bytes = sum(map(len, buffers))
        self.generation = log.generation
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.append_timestamp_ms = append_timestamp_ms
        # The batch was appended before; it has no buffers, and is done when the original is durable.
        self.duplicate = duplicate
        self.done = False
        self.error: LogError | None = None

    def wait(self, timeout_s: float | None = None) -> "PendingAppend":
        """Block until it is over; raises what went wrong, or `TimeoutError`."""
        self.writer.wait_for(self, timeout_s)
        if self.error is not None:
            raise self.error
        return self


@dataclass(slots=True)
class AfterFlush:
    """Work for the writer thread once everything submitted before is durable: checkpoints, indexes, closing files."""

    log: WritableLog
    generation: int
    run: Callable[[], None]


class _Barrier:
    """Tells its submitter that the writer has come so far."""

    __slots__ = ("passed",)

    def __init__(self) -> None:
        self.passed = threading.Event()


_Job = PendingAppend | AfterFlush | _Barrier | None


class GroupCommitWriter:
    """One writer thread for all logs on one disk."""

    def __init__(
        self,
        path: Path,
        disk: Disk | None = None,
        *,
        sync_filesystem_from: int = SYNC_FILESYSTEM_FROM,
        early_sync_files: int = EARLY_SYNC_FILES,
        on_group: Callable[[Sequence[PendingAppend]], None] | None = None,
    ) -> None:
        """Serve the disk that holds ``path``. ``on_group`` is called in the writer thread after each group."""
        self.path = path
        self.disk = disk or Disk()
        self.failure: StorageFailed | None = None
        self.groups = 0
        self._on_group = on_group
        self._sync_filesystem_from = sync_filesystem_from if self.disk.sync_filesystem_reports_errors(path) else 0
        self._early_sync_files = early_sync_files
        self._early_sync = ThreadPoolExecutor(1, thread_name_prefix=f"lograft-sync-{path.name}")
        self._directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._queue: SimpleQueue[_Job] = SimpleQueue()
        self._progress = threading.Condition()
        self._waiting = 0
        # Logs of which this group has refused something; the writer thread's own.
        self._refusing: set[WritableLog] = set()
        self._thread = threading.Thread(target=self._serve, name=f"lograft-writer-{path.name}", daemon=True)
        self._thread.start()

    def submit(self, job: PendingAppend | AfterFlush) -> None:
        """Queue a job. Never blocks: the caller bounds what it has in flight."""
        if self.failure is not None:
            raise self.failure
        self._queue.put(job)

    def wait_for(self, pending: PendingAppend, timeout_s: float | None = None) -> None:
        """Block until ``pending`` is over, well or not."""
        if pending.done:
            return
        with self._progress:
            self._waiting += 1
            try:
                if not self._progress.wait_for(lambda: pending.done, timeout_s):
                    raise TimeoutError(f"the append was not durable within {timeout_s} s; it may still become so")
            finally:
                self._waiting -= 1

    def drain(self) -> None:
        """Block until everything submitted so far is done with, and raise if the disk has failed."""
        barrier = _Barrier()
        self._queue.put(barrier)
        while not barrier.passed.wait(1.0):
            if not self._thread.is_alive():
                break
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """Finish what is queued and stop the thread."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        self._early_sync.shutdown()
        if self._directory >= 0:
            os.close(self._directory)
            self._directory = -1

    def _serve(self) -> None:
        stopping = False
        while not stopping:
            group: list[_Job] = [self._queue.get()]
            # Whatever has queued up meanwhile goes along; what comes while we drain is for the next group.
            group += [self._queue.get() for _ in range(min(self._queue.qsize(), _MAX_GROUP_JOBS))]
            stopping = None in group
            self._process(group)

    def _process(self, group: list[_Job]) -> None:
        appends = [job for job in group if isinstance(job, PendingAppend)]
        try:
            if appends:
                self._commit(appends)
        except Exception as error:  # whatever it is, nothing that is still open may be acknowledged
            self._fail(error, appends)
        # Waiters first: the work after the flush is not theirs to wait for.
        self._finish(appends)
        try:
            if appends and self._on_group is not None:
                self._on_group(appends)
            for job in group:
                if isinstance(job, AfterFlush):
                    self._run_after(job)
        except Exception as error:  # the thread must live: others wait for it
            self._fail(error, ())
        for job in group:
            if isinstance(job, _Barrier):
                job.passed.set()

    def _commit(self, appends: list[PendingAppend]) -> None:
        if self.failure is not None:
            raise self.failure
        by_file: dict[SegmentFile, list[PendingAppend]] = {}
        for append in appends:
            by_file.setdefault(append.file, []).append(append)
        written = self._write_all(by_file)
        to_sync = {append.file for append in written if append.log.syncs_before_ack}
        self._sync({file for last in to_sync for file in last.with_predecessors()})
        if self.failure is not None:  # closed meanwhile by a failure elsewhere
            raise self.failure
        for append in written:
            if append.buffers:
                append.file.flushed_bytes = append.position + append.size_bytes
            append.log.note_flushed(append.next_offset)
            append.done = True
        # Only now may the owners roll back: to an end that includes what was just flushed.
        for log in self._refusing:
            log.refused = True
        self._refusing.clear()
        self.groups += 1

    def _write_all(self, by_file: dict[SegmentFile, list[PendingAppend]]) -> list[PendingAppend]:
        """Write each file's share; those that were really written.

        With many files the disk begins to sync the first while the others are written: 1,000 partitions took a third
        less time. What those early syncs cover does not matter, only that none of them failed: the last one, after
        all is written, covers everything.
        """
        at_once = len(by_file) == 1
        early_syncs = self._sync_filesystem_from > 0 and len(by_file) >= 2 * self._early_sync_files
        written: list[PendingAppend] = []
        started: list[Future[None]] = []
        try:
            for number, (file, share) in enumerate(by_file.items(), 1):
                written += self._write(file, share, at_once=at_once)
                is_due = early_syncs and number % self._early_sync_files == 0 and number < len(by_file)
                if is_due and (not started or started[-1].done()):
                    started.append(self._early_sync.submit(self.disk.sync_filesystem, self._directory))
        finally:
            wait(started)
        for sync in started:
            sync.result()
        return written

    def _write(self, file: SegmentFile, share: list[PendingAppend], *, at_once: bool) -> list[PendingAppend]:
        """Write the appends of one file; those that were really written. ``at_once`` asks to write and sync in one."""
        repeats, current = [], []
        for append in share:
            log = append.log
            if append.duplicate and append.next_offset <= log.flushed_end_offset:
                repeats.append(append)  # durable long since, whatever becomes of the others
            elif log.refused or log in self._refusing or append.generation != log.generation:
                append.error = DiskFull(str(file.path))
            else:
                current.append(append)
        buffers = [buffer for append in current for buffer in append.buffers]
        if not buffers:
            return repeats + current
        position = next(append.position for append in current if append.buffers)
        durable = at_once and current[0].log.syncs_before_ack and not file.unsynced and len(buffers) <= MAX_BUFFERS
        try:
            self.disk.write(file.open(self.disk), buffers, position, durable=durable)
        except OSError as error:
            if not is_no_space(error):
                raise
            self._refuse(file, position, current)
            return repeats
        file.unsynced = not durable
        return repeats + current

    def _refuse(self, file: SegmentFile, position: int, refused: list[PendingAppend]) -> None:
        """Undo a write for which there was no space. If even that fails, the caller closes the disk."""
        if file.descriptor >= 0:
            self.disk.truncate(file.descriptor, position)
            # Durably: what was refused must not come back after a crash.
            self.disk.sync_file(file.descriptor)
        for append in refused:
            append.error = DiskFull(str(file.path))
            self._refusing.add(append.log)
        _logger.error("no space left for %s: %d appends refused", file.path, len(refused))

    def _sync(self, files: set[SegmentFile]) -> None:
        """Make what was written to ``files`` durable, and the entries of those that are new."""
        dirty = [file for file in files if file.unsynced]
        new = {file.path.parent for file in files if file.is_new and file.descriptor >= 0}
        if 0 < self._sync_filesystem_from <= len(dirty) + len(new):
            self.disk.sync_filesystem(self._directory)
        else:
            for file in dirty:
                self.disk.sync_file(file.descriptor)
            for directory in new:
                self.disk.sync_directory(directory)
        for file in files:
            file.unsynced = False
            file.is_new = file.is_new and file.descriptor < 0

    def _run_after(self, job: AfterFlush) -> None:
        if self.failure is not None or job.log.refused or job.generation != job.log.generation:
            return
        with going_on_without_space(self.path):  # checkpoints and indexes are caches: the next one will do
            job.run()

    def close_for_writing(self, error: Exception) -> StorageFailed:
        """After a failure that cannot be undone: nothing is written from now on. Any thread may call it."""
        if self.failure is None:
            self.failure = StorageFailed(str(self.path), str(error))
            _logger.critical("the disk of %s is closed for writing", self.path, exc_info=error)
        return self.failure

    def _fail(self, error: Exception, appends: Iterable[PendingAppend]) -> None:
        if self.failure is not None:
            return
        self.close_for_writing(error)
        for log in {append.log for append in appends if not append.done}:
            try:
                log.note_sync_failure()
            except Exception as second:
                _logger.critical("the failure could not be noted on the disk either: %s", second)

    def _finish(self, appends: list[PendingAppend]) -> None:
        """Mark all that is not done as failed, and wake whoever waits."""
        for append in appends:
            if not append.done:
                append.error = append.error or self.failure
                append.done = True
        if self._waiting:
            with self._progress:
                self._progress.notify_all()
