"""A process that writes to one partition's log until something happens to it, and a judge of what it left behind.

The workload writes down every promise it was given (an acknowledgement, a truncation, a deletion) in a journal, one
line and one system call each, at the moment it holds the promise. After a crash, `judge` compares the log with the
journal. Run under the power-loss shim, the journal is the shim's file of marks, in one order with the system calls.
"""

import hashlib
import os
import random
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from lograft.contract.records import Record, encode_batch
from lograft.storage import CleanupPolicy, Durability, LogConfig, PartitionLog, PendingAppend
from lograft.storage.compaction import compact

_IN_FLIGHT = 8
_MAX_RECORDS = 12
_KEYS = 50


class Mode(StrEnum):
    """What the workload does besides appending."""

    APPEND = "append"
    TRIM = "trim"
    COMPACT = "compact"


_CHANGE_EVERY = {Mode.APPEND: sys.maxsize, Mode.TRIM: 12, Mode.COMPACT: 40}


def workload_config(durability: Durability, mode: Mode) -> LogConfig:
    """Small segments and frequent checkpoints, so that a short life sees many of them."""
    return LogConfig(
        segment_bytes=40_000,
        max_batch_bytes=20_000,
        index_interval_bytes=2_000,
        checkpoint_interval_bytes=25_000,
        durability=durability,
        cleanup_policy=CleanupPolicy.COMPACT if mode is Mode.COMPACT else CleanupPolicy.DELETE,
        retention_ms=None,
        retention_bytes=150_000 if mode is Mode.TRIM else None,
    )


class Workload:
    """Appends with several batches in flight; depending on the mode, truncates, deletes or compacts now and then."""

    def __init__(self, log: PartitionLog, journal: Path, seed: int, mode: Mode) -> None:
        self._log = log
        self._journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._chance = random.Random(seed)  # noqa: S311 - a seed, so that a run can be repeated
        self._mode = mode
        self._pending: deque[tuple[PendingAppend, str]] = deque()

    def run(self, batches: int) -> None:
        """Append so many batches."""
        self._say(f"opened {self._log.log_start_offset} {self._log.log_end_offset}")
        for turn in range(1, batches + 1):
            self._append()
            while len(self._pending) >= self._chance.randint(1, _IN_FLIGHT):
                self._acknowledge()
            if turn % _CHANGE_EVERY[self._mode] == 0:
                self._acknowledge_all()
                self._change()
        self._acknowledge_all()

    def _say(self, line: str) -> None:
        os.write(self._journal, line.encode() + b"\n")

    def _append(self) -> None:
        base = self._log.log_end_offset
        count = self._chance.randint(1, _MAX_RECORDS)
        values = [
            b"%d:%d:" % (base + i, self._chance.getrandbits(32)) + bytes(self._chance.randrange(300))
            for i in range(count)
        ]
        keys = [b"%d" % self._chance.randrange(_KEYS) for _ in values]
        batch = encode_batch(values, keys=keys, timestamps_ms=time.time_ns() // 1_000_000)
        promise = ",".join(f"{key.decode()}:{digest(value)}" for key, value in zip(keys, values, strict=True))
        self._pending.append((self._log.submit(batch), promise))

    def _acknowledge(self) -> None:
        append, promise = self._pending.popleft()
        append.wait()
        self._say(f"acked {append.base_offset} {promise}")

    def _acknowledge_all(self) -> None:
        while self._pending:
            self._acknowledge()

    def _change(self) -> None:
        log = self._log
        if self._mode is Mode.COMPACT:
            self._say("compacting")
            compact(log, force=True)
        elif self._chance.random() < 0.3:
            self._say(f"deleting {log.log_end_offset}")
            log.enforce_retention()
            log.flush()
            self._say(f"deleted {log.log_start_offset}")
        elif self._chance.random() < 0.5:
            target = max(log.log_end_offset - self._chance.randint(0, 300), log.log_start_offset + 1)
            self._say(f"truncating {target}")
            self._say(f"truncated {log.truncate(target)}")
        else:
            target = log.log_start_offset + self._chance.randint(0, (log.log_end_offset - log.log_start_offset) // 3)
            self._say(f"deleting {target}")
            self._say(f"deleted {log.delete_records(target)}")


def digest(value: bytes) -> str:
    """A short fingerprint of a value."""
    return hashlib.blake2b(value, digest_size=6).hexdigest()


@dataclass(slots=True)
class Promises:
    """What the journal says must be in the log."""

    # Offset to key and fingerprint.
    acked: dict[int, tuple[str, str]] = field(default_factory=dict)
    # Records below may be gone (a deletion was under way), and below `start` they must be.
    maybe_start: int = 0
    start: int = 0
    # Records from here on may be gone: a truncation was under way.
    maybe_end: int | None = None
    # Fingerprints of what was truncated: it must not come back.
    truncated: set[str] = field(default_factory=set)

    def take(self, line: str) -> None:
        """Take in one line of the journal."""
        word, _, rest = line.partition(" ")
        match word:
            case "opened":
                # A truncation that a kill cut short has happened or not. Nothing is promised any more about what it was
                # after: others may have been written there since, and not acknowledged before the next kill.
                if self.maybe_end is not None:
                    self.acked = {offset: held for offset, held in self.acked.items() if offset < self.maybe_end}
                    self.maybe_end = None
            case "acked":
                base, _, promise = rest.partition(" ")
                for index, entry in enumerate(promise.split(",")):
                    key, _, fingerprint = entry.partition(":")
                    self.acked[int(base) + index] = (key, fingerprint)
            case "truncating":
                # The batch that holds the offset goes as a whole.
                self.maybe_end = int(rest) - _MAX_RECORDS
            case "truncated":
                self.maybe_end = None
                for offset in [offset for offset in self.acked if offset >= int(rest)]:
                    self.truncated.add(self.acked.pop(offset)[1])
            case "deleting":
                self.maybe_start = int(rest)
            case "deleted":
                self.start = self.maybe_start = int(rest)
            case _:
                pass


def read_promises(lines: Iterable[str]) -> Promises:
    """All promises of a journal; a last line without its end was never made."""
    promises = Promises()
    for line in lines:
        if line.endswith("\n"):
            promises.take(line.rstrip("\n"))
    return promises


def judge(log: PartitionLog, promises: Promises, mode: Mode) -> Iterator[str]:
    """Every way in which the log breaks a promise, in words."""
    if log.log_start_offset < promises.start:
        yield f"the log start went back from {promises.start} to {log.log_start_offset}"
    found = {record.offset: record for record in log.records()}
    yield from _misplaced(found, log, mode)
    for offset, record in found.items():
        if digest(record.value or b"") in promises.truncated:
            yield f"record {offset} was truncated and is back"
    newest: dict[str, int] = {}
    for offset, (key, fingerprint) in sorted(promises.acked.items()):
        if offset < max(promises.maybe_start, promises.start):
            continue
        if promises.maybe_end is not None and offset >= promises.maybe_end:
            continue
        newest[key] = offset
        if mode is not Mode.COMPACT and not _holds(found.get(offset), fingerprint):
            yield f"acknowledged record {offset} is {'other' if offset in found else 'gone'}"
    if mode is Mode.COMPACT:
        for key, offset in newest.items():
            if not any(record.key == key.encode() for at, record in found.items() if at >= offset):
                yield f"key {key}, acknowledged at offset {offset}, is gone"


def _holds(record: Record | None, fingerprint: str) -> bool:
    return record is not None and record.value is not None and digest(record.value) == fingerprint


def _misplaced(found: dict[int, Record], log: PartitionLog, mode: Mode) -> Iterator[str]:
    for offset, record in found.items():
        if int((record.value or b"-1:").partition(b":")[0]) != offset:
            yield f"offset {offset} holds {record.value!r}"
    expected = list(range(log.log_start_offset, log.log_end_offset))
    if mode is not Mode.COMPACT and list(found) != expected:
        yield f"the offsets from {log.log_start_offset} to {log.log_end_offset} are not complete and in order"


def run_workload(directory: Path, journal: Path, durability: Durability, mode: Mode, seed: int, batches: int) -> None:
    """Open the log and work on it: the body of the process that gets killed."""
    with PartitionLog.open(directory, workload_config(durability, mode)) as log:
        Workload(log, journal, seed, mode).run(batches)


def main() -> None:
    """Run the workload of the command line: directory, journal, durability, mode, seed, number of batches."""
    directory, journal, durability, mode, seed, batches = sys.argv[1:]
    run_workload(Path(directory), Path(journal), Durability(durability), Mode(mode), int(seed), int(batches))


if __name__ == "__main__":
    main()
