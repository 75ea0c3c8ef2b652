"""Compaction: rewrite closed segments so that only the newest record of each key is left.

It runs in three steps, so that the middle one, which costs the time, can run in another process and does not share the
interpreter with heartbeats: `plan` looks at the log, `run` reads old files and writes new ones, `install`
swaps them in.
A crash at any point leaves the old segments or the new ones (see `recovery.complete_swap`); never a mix.
"""

import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from lograft.contract.batch import Batch
from lograft.contract.disk import Disk, going_on_without_space
from lograft.contract.errors import CorruptBatch, StorageCorrupted
from lograft.contract.ids import random_id
from lograft.contract.records import RecordColumns, decode_stored, encode_compacted
from lograft.storage.core.compaction import (
    CompactionRules,
    Drop,
    Keep,
    Rewrite,
    compacted_batch,
    is_worth_compacting,
    segment_groups,
)
from lograft.storage.index import write_index
from lograft.storage.log import PartitionLog
from lograft.storage.open_files import opened_for_reading
from lograft.storage.segment import Segment, index_by_scan, scan_batches
from lograft.storage.swap import SwapFile, complete_swap

# A key costs about 150 bytes of memory while a run lasts; with more keys, a run compacts only as far as they reach.
MAX_KEYS_PER_RUN = 1_000_000
_WRITE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """All that `run` needs to know; it can be pickled and run in another process."""

    directory: str
    segments: tuple[tuple[int, str, int], ...]  # base offset, path, bytes
    dirty_from_offset: int
    segment_bytes: int
    now_ms: int
    delete_retention_ms: int
    producer_batches: frozenset[int]
    # How often the log had been cut: a plan from before a cut is void after it.
    cuts: int
    # The names of a run's files are its own: a worker that outlived its broker must not write into ours.
    run_id: str
    max_keys: int = MAX_KEYS_PER_RUN


@dataclass(frozen=True, slots=True)
class CompactedGroup:
    """Some neighbouring segments and the file that shall replace them; no file if nothing would change."""

    replaced_bases: tuple[int, ...]
    cleaned_path: str | None


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What `run` has done."""

    groups: tuple[CompactedGroup, ...]
    compacted_end_offset: int
    cuts: int
    bytes_before: int
    bytes_after: int


def compact(log: PartitionLog, *, executor: Executor | None = None, force: bool = False) -> CompactionResult | None:
    """Compact the closed segments of a log if it is worth it (or ``force``); None if it was not.

    With an ``executor`` (a spawned process pool) the work is done there, and this call waits for it.
    """
    job = plan(log, force=force)
    if job is None:
        return None
    result = run(job) if executor is None else executor.submit(run, job).result()
    install(log, result)
    return result


def plan(log: PartitionLog, *, force: bool = False) -> CompactionPlan | None:
    """Decide what to compact: the closed segments wholly below the high watermark."""
    log.check_writable()
    if not log.config.cleanup_policy.compacts:
        return None
    limit = min(log.high_watermark, log.closed_end_offset)
    closed = [segment for segment in log.segments[:-1] if segment.next_offset <= limit]
    dirty_from = log.compacted_end_offset
    dirty_bytes = sum(segment.size_bytes for segment in closed if segment.next_offset > dirty_from)
    clean_bytes = sum(segment.size_bytes for segment in closed) - dirty_bytes
    worth = is_worth_compacting(clean_bytes, dirty_bytes, log.config.min_compaction_dirty_ratio)
    if not closed or not (worth or force):
        return None
    return CompactionPlan(
        directory=str(log.path),
        segments=tuple((segment.base_offset, str(segment.path), segment.size_bytes) for segment in closed),
        dirty_from_offset=dirty_from,
        segment_bytes=log.config.segment_bytes,
        now_ms=log.now_ms(),
        delete_retention_ms=log.config.delete_retention_ms,
        producer_batches=log.producers.last_batch_offsets(),
        cuts=log.cuts,
        run_id=random_id(),
    )


def run(job: CompactionPlan) -> CompactionResult:
    """Read the segments and write the compacted ones beside them (``.cleaned-…``), synced. Changes nothing yet."""
    disk = Disk()
    newest, known_end = _newest_offsets(disk, job)
    rules = CompactionRules(job.now_ms, job.delete_retention_ms, job.producer_batches, known_end)
    groups: list[CompactedGroup] = []
    bytes_after = 0
    bases = [base for base, _, _ in job.segments]
    sizes = [size for _, _, size in job.segments]
    try:
        for group in segment_groups(bases, sizes, job.segment_bytes):
            members = [job.segments[index] for index in group]
            target = Path(f"{members[0][1]}.cleaned-{job.run_id}")
            groups.append(CompactedGroup(tuple(base for base, _, _ in members), str(target)))
            size, changed = _rewrite(disk, members, target, newest, rules)
            # Merging alone is worth a rewrite too: many small segments are many open files.
            if not changed and len(members) == 1:
                disk.remove(target)
                groups[-1] = CompactedGroup(groups[-1].replaced_bases, None)
            bytes_after += size
    except BaseException:
        for written in groups:
            if written.cleaned_path is not None:
                disk.remove(Path(written.cleaned_path))
        raise
    return CompactionResult(tuple(groups), known_end, job.cuts, sum(sizes), bytes_after)


def install(log: PartitionLog, result: CompactionResult) -> None:
    """Swap the new segments in. What was changed since the plan is left as it is."""
    log.check_writable()
    compacted_end = result.compacted_end_offset
    skipped = False
    for group in result.groups:
        if group.cleaned_path is None:
            continue
        cleaned = Path(group.cleaned_path)
        old = tuple(segment for segment in log.segments[:-1] if segment.base_offset in group.replaced_bases)
        unchanged = result.cuts == log.cuts and tuple(segment.base_offset for segment in old) == group.replaced_bases
        # Deleted or truncated meanwhile: then what this run knows of newer records was not applied there, and no later
        # group may be replaced either, since a tombstone that it drops may still be needed.
        skipped = skipped or not unchanged
        if skipped:
            log.disk.remove(cleaned)
            compacted_end = min(compacted_end, group.replaced_bases[0])
        else:
            _swap_in(log, cleaned, old)
    log.note_compacted(min(compacted_end, log.log_end_offset))


def _swap_in(log: PartitionLog, cleaned: Path, old: tuple[Segment, ...]) -> None:
    base, end_offset = old[0].base_offset, old[-1].next_offset
    path = old[0].path
    # Everything that may go wrong with the new file goes wrong before the point of no return.
    try:
        builder, next_offset, size = index_by_scan(log.disk, cleaned, base, log.config.index_interval_bytes)
    except CorruptBatch as error:
        raise StorageCorrupted(str(cleaned), error.position, error.problem) from None
    if next_offset != end_offset:
        raise StorageCorrupted(str(cleaned), size, f"it ends at offset {next_offset} instead of {end_offset}")
    summary = builder.summary(base, next_offset, size)
    for segment in old:  # for readers that are on their way
        segment.pin()
    try:
        swap = SwapFile.of(path, base, end_offset)
        log.disk.rename(cleaned, swap.path)
        # From here on the new segment counts, whatever happens.
        log.disk.sync_directory(log.path)
        complete_swap(log.path, log.disk, swap)
    except OSError as error:
        raise log.writer.close_for_writing(error) from error
    log.replace_segments(old, Segment(log.disk, path, summary, builder))
    for segment in old:
        segment.close()
    try:
        with going_on_without_space(path):
            write_index(log.disk, path, summary, builder.index)
    except OSError as error:
        raise log.writer.close_for_writing(error) from error


def _key_hash(key: bytes) -> bytes:
    # Collisions would lose records, so the hash is one where nobody finds any.
    return key if len(key) <= 16 else b"#" + hashlib.blake2b(key, digest_size=16).digest()


def _newest_offsets(disk: Disk, job: CompactionPlan) -> tuple[dict[bytes, int], int]:
    """The newest offset of each key in the part that is new, and up to where that is known."""
    newest: dict[bytes, int] = {}
    known_end = job.dirty_from_offset
    for base, path, size in job.segments:
        next_base = next((other for other, _, _ in job.segments if other > base), None)
        if next_base is not None and next_base <= job.dirty_from_offset:
            continue
        for batch, columns in _batches(disk, Path(path), size):
            if batch.header.next_offset <= job.dirty_from_offset:
                continue
            for key, offset in zip(columns.keys or (), columns.offsets, strict=False):
                if key is not None:
                    newest[_key_hash(key)] = offset
            known_end = batch.header.next_offset
            if len(newest) >= job.max_keys:
                return newest, known_end
    return newest, known_end


def _rewrite(
    disk: Disk,
    members: list[tuple[int, str, int]],
    target: Path,
    newest: dict[bytes, int],
    rules: CompactionRules,
) -> tuple[int, bool]:
    """Write the compacted batches of some segments to ``target``; its size, and whether anything is gone."""
    file = disk.open_file(target, create=True)
    position = 0
    changed = False
    pending: list[bytes] = []
    pending_bytes = 0
    try:
        for batch, columns, is_last in _with_last(
            (batch, columns) for _, path, size in members for batch, columns in _batches(disk, Path(path), size)
        ):
            kept = _compacted(batch, columns, newest, rules, is_last=is_last)
            changed = changed or kept is not batch
            if kept is None:
                continue
            frame = kept.frame()
            pending.append(frame)
            pending_bytes += len(frame)
            if pending_bytes >= _WRITE_BYTES:
                disk.write(file, pending, position)
                position += pending_bytes
                pending, pending_bytes = [], 0
        disk.write(file, pending, position)
        disk.sync_file(file)
    finally:
        os.close(file)
    return position + pending_bytes, changed


def _compacted(
    batch: Batch, columns: RecordColumns, newest: dict[bytes, int], rules: CompactionRules, *, is_last: bool
) -> Batch | None:
    """The batch itself, what is left of it, or None."""
    hashed = RecordColumns(
        columns.offsets,
        columns.timestamps_ms,
        columns.values,
        None if columns.keys is None else [None if key is None else _key_hash(key) for key in columns.keys],
    )
    match compacted_batch(batch.header, hashed, newest, rules, is_last=is_last):
        case Keep():
            return batch
        case Drop():
            return None
        case Rewrite(keep, delete_horizon_ms):
            return encode_compacted(batch.header, columns.where(keep), delete_horizon_ms=delete_horizon_ms)


def _batches(disk: Disk, path: Path, size: int) -> Iterator[tuple[Batch, RecordColumns]]:
    try:
        with opened_for_reading(disk, path) as (file, _):
            for _, batch in scan_batches(disk, file, 0, size):
                yield batch, decode_stored(batch)
    except CorruptBatch as error:
        raise StorageCorrupted(str(path), error.position, error.problem) from None


def _with_last(
    batches: Iterator[tuple[Batch, RecordColumns]],
) -> Iterator[tuple[Batch, RecordColumns, bool]]:
    """Each batch with whether it is the last."""
    held: tuple[Batch, RecordColumns] | None = None
    for following in batches:
        if held is not None:
            yield (*held, False)
        held = following
    if held is not None:
        yield (*held, True)
