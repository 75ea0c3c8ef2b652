"""Which records compaction keeps: the newest of each key, and tombstones for a while."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lograft.contract.batch import BatchHeader
from lograft.contract.records import RecordColumns


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """What one compaction run goes by."""

    now_ms: int
    delete_retention_ms: int
    # Base offsets of the last batch of each live producer: their headers stay, even with no record left.
    producer_batches: frozenset[int]
    # Offset up to which (exclusive) the newest offset of each key is known.
    known_end_offset: int


@dataclass(frozen=True, slots=True)
class Keep:
    """The batch stays as it is."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Only some records of the batch stay (perhaps none, when its header is still needed)."""

    keep: Sequence[bool]
    delete_horizon_ms: int


@dataclass(frozen=True, slots=True)
class Drop:
    """Nothing of the batch is needed."""


BatchVerdict = Keep | Rewrite | Drop


def compacted_batch(
    header: BatchHeader,
    columns: RecordColumns,
    newest_offsets: Mapping[bytes, int],
    rules: CompactionRules,
    *,
    is_last: bool,
) -> BatchVerdict:
    """What becomes of one batch.

    A record stays unless its key has a newer one. A tombstone stays until the batch's delete horizon, which the first
    run that sees it sets: readers have ``delete_retention_ms`` from then on to learn of the deletion. The last batch of
    a segment stays in any case, so that the segment's end does not move.
    """
    if header.last_offset >= rules.known_end_offset:
        return Keep()
    horizon_passed = bool(header.delete_horizon_ms) and rules.now_ms >= header.delete_horizon_ms
    keys = columns.keys if columns.keys is not None else [None] * len(columns)
    keep = [
        key is None or (newest_offsets.get(key, offset) <= offset and not (value is None and horizon_passed))
        for key, value, offset in zip(keys, columns.values, columns.offsets, strict=True)
    ]
    horizon_ms = header.delete_horizon_ms
    if not horizon_ms and any(kept and value is None for kept, value in zip(keep, columns.values, strict=True)):
        horizon_ms = rules.now_ms + rules.delete_retention_ms
    if all(keep) and horizon_ms == header.delete_horizon_ms:
        needed = len(columns) or is_last or header.base_offset in rules.producer_batches
        return Keep() if needed else Drop()
    if any(keep) or is_last or header.base_offset in rules.producer_batches:
        return Rewrite(keep, horizon_ms)
    return Drop()


_MAX_GROUP_SPAN = 1 << 31


def is_worth_compacting(clean_bytes: int, dirty_bytes: int, min_dirty_ratio: float) -> bool:
    """Whether enough of the closed segments is new since the last run."""
    return dirty_bytes > 0 and dirty_bytes >= min_dirty_ratio * (clean_bytes + dirty_bytes)


def segment_groups(bases: Sequence[int], sizes: Sequence[int], limit_bytes: int) -> list[range]:
    """Neighbouring segments that are rewritten into one: as many as fit the segment size together.

    Nor may their offsets lie too far apart: an index row has 32 bits for the distance.
    """
    groups: list[range] = []
    start = total = 0
    for index, size in enumerate(sizes):
        if index > start and (total + size > limit_bytes or bases[index] - bases[start] > _MAX_GROUP_SPAN):
            groups.append(range(start, index))
            start, total = index, 0
        total += size
    if start < len(sizes):
        groups.append(range(start, len(sizes)))
    return groups
