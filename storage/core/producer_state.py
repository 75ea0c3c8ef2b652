"""Idempotent producers: recognise a repeated batch, refuse one that skips ahead or comes from a fenced incarnation.

The state of a partition is a function of the batch headers in its log, so it can always be rebuilt, and every replica
has the same. `ProducerStates.check` decides, `ProducerStates.note` records what was appended, and `undo_to` takes back
what did not become durable after all.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from lograft.contract.batch import SEQUENCE_LIMIT, BatchHeader


class RememberedBatch(NamedTuple):
    """One batch that its producer may send again."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset_delta: int
    append_timestamp_ms: int


class ProducerEntry(NamedTuple):
    """One producer: its incarnation and its latest batches, oldest first."""

    producer_epoch: int
    batches: tuple[RememberedBatch, ...]


@dataclass(frozen=True, slots=True)
class Accepted:
    """The batch is next in line."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The batch was appended before, at these offsets."""

    base_offset: int
    last_offset: int
    append_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class OutOfOrder:
    """The batch does not follow the last one."""

    expected_sequence: int


@dataclass(frozen=True, slots=True)
class Fenced:
    """A newer incarnation of the producer has written."""

    current_epoch: int


Verdict = Accepted | Duplicate | OutOfOrder | Fenced
_ACCEPTED = Accepted()


class ProducerStates:
    """All idempotent producers of one partition."""

    __slots__ = ("_entries", "_remembered", "_undo")

    def __init__(self, remembered_batches: int, entries: Iterable[tuple[int, ProducerEntry]] = ()) -> None:
        self._remembered = remembered_batches
        self._entries: dict[int, ProducerEntry] = dict(entries)
        # What each note replaced, oldest first: (base offset, producer id, entry before).
        self._undo: deque[tuple[int, int, ProducerEntry | None]] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def check(self, header: BatchHeader) -> Verdict:
        """What to do with a batch that a producer sent."""
        if not header.producer_id:
            return _ACCEPTED
        entry = self._entries.get(header.producer_id)
        if entry is None:
            # Unknown, or forgotten since: there is nothing that it could repeat or skip.
            return _ACCEPTED
        if header.producer_epoch < entry.producer_epoch:
            return Fenced(entry.producer_epoch)
        if header.producer_epoch > entry.producer_epoch:
            return _ACCEPTED if header.base_sequence == 0 else OutOfOrder(0)
        for batch in entry.batches:
            if batch.base_sequence == header.base_sequence and batch.last_sequence == header.last_sequence:
                return Duplicate(
                    batch.base_offset, batch.base_offset + batch.last_offset_delta, batch.append_timestamp_ms
                )
        expected = (entry.batches[-1].last_sequence + 1) % SEQUENCE_LIMIT
        return _ACCEPTED if header.base_sequence == expected else OutOfOrder(expected)

    def note(self, header: BatchHeader) -> None:
        """Record a batch that was appended, with the offsets it got."""
        if not header.producer_id:
            return
        entry = self._entries.get(header.producer_id)
        self._undo.append((header.base_offset, header.producer_id, entry))
        batch = RememberedBatch(
            header.base_sequence,
            header.last_sequence,
            header.base_offset,
            header.last_offset_delta,
            header.append_timestamp_ms,
        )
        earlier = () if entry is None or entry.producer_epoch != header.producer_epoch else entry.batches
        self._entries[header.producer_id] = ProducerEntry(
            header.producer_epoch,
            (*earlier[1 - self._remembered :], batch) if self._remembered > 1 else (batch,),
        )

    def undo_to(self, end_offset: int) -> None:
        """Take back every noted batch at or after ``end_offset``. Only what was not yet settled can be."""
        while self._undo and self._undo[-1][0] >= end_offset:
            _, producer_id, before = self._undo.pop()
            if before is None:
                self._entries.pop(producer_id, None)
            else:
                self._entries[producer_id] = before

    def settle_to(self, end_offset: int) -> None:
        """Batches below ``end_offset`` are durable and will not be taken back."""
        while self._undo and self._undo[0][0] < end_offset:
            self._undo.popleft()

    def forget_idle(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that sent nothing for ``expiration_ms``; how many."""
        unsettled = {producer_id for _, producer_id, _ in self._undo}
        idle = [
            producer_id
            for producer_id, entry in self._entries.items()
            if now_ms - entry.batches[-1].append_timestamp_ms > expiration_ms and producer_id not in unsettled
        ]
        for producer_id in idle:
            del self._entries[producer_id]
        return len(idle)

    def last_batch_offsets(self) -> frozenset[int]:
        """Base offset of each producer's last batch: compaction keeps those headers."""
        return frozenset(entry.batches[-1].base_offset for entry in self._entries.values())

    def entries(self) -> list[tuple[int, ProducerEntry]]:
        """Producer ids and their entries, by id."""
        return sorted(self._entries.items())
