"""The content of one file: what is surely on disk, and what only may be.

Pure. The rule is POSIX at its worst: without a sync, every write stands alone, so a later one may survive
where an earlier one did not, and each 512-byte sector of a write may survive on its own.
"""

from collections import deque
from random import Random

from lograft.chaos.power_loss.trace import Resized, Wrote

SECTOR_BYTES = 512


class FileContent:
    """One inode with data, alive as long as a name (live or durable) or the inode table refers to it.

    Between calls: ``_pending`` is in order of sequence numbers, and no settled change is in it.
    """

    __slots__ = ("_durable", "_frozen", "_pending")

    def __init__(self, durable: bytes = b"") -> None:
        self._durable = bytearray(durable)
        self._frozen: bytes | None = None
        self._pending: deque[tuple[int, Wrote | Resized]] = deque()

    @property
    def dirty(self) -> bool:
        """Whether anything waits for a sync."""
        return bool(self._pending)

    def change(self, sequence: int, event: Wrote | Resized) -> None:
        """Remember a change that no sync has covered yet."""
        self._pending.append((sequence, event))

    def settle(self, before: int) -> None:
        """A sync that began at ``before`` succeeded: earlier changes are durable."""
        while self._pending and self._pending[0][0] < before:
            _, event = self._pending.popleft()
            self._frozen = None
            if isinstance(event, Resized):
                _resize(self._durable, event.size)
            else:
                _put(self._durable, event.position, event.data)

    def lose(self, before: int) -> None:
        """A sync that began at ``before`` failed: the kernel marked the pages clean and never tries again.

        Keeping them pending would let a retried fsync "succeed", which is the belief that lost PostgreSQL its
        data.
        """
        while self._pending and self._pending[0][0] < before:
            self._pending.popleft()

    def durable(self) -> bytes:
        """What is there if nothing unsynced survives."""
        if self._frozen is None:
            self._frozen = bytes(self._durable)
        return self._frozen

    def survivor(self, random: Random) -> bytes:
        """What may be there: each pending change wholly, not at all, or torn."""
        if not self._pending:
            return self.durable()
        # Only the part behind the first pending change is copied and patched: logs grow at their end, and
        # copying all of each file twice per image would dominate the time.
        start = min(e.size if isinstance(e, Resized) else e.position for _, e in self._pending)
        start = min(start, len(self._durable))
        tail = self._durable[start:]
        for _, event in self._pending:
            if isinstance(event, Resized):
                if random.random() < 0.5:
                    _resize(tail, event.size - start)
            else:
                _put_some(tail, event, start, random)
        with memoryview(self._durable) as whole, whole[:start] as head:
            return b"".join((head, tail))


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def _put(content: bytearray, position: int, data: bytes | memoryview) -> None:
    if position > len(content):
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


def _put_some(tail: bytearray, event: Wrote, start: int, random: Random) -> None:
    outcome = random.randrange(3)
    if outcome == 0:
        return
    if outcome == 1:
        _put(tail, event.position - start, event.data)
        return
    end = event.position + len(event.data)
    first_sector = event.position // SECTOR_BYTES
    sectors = (end - 1) // SECTOR_BYTES - first_sector + 1
    coins = random.getrandbits(sectors)
    # The new size may reach the disk without the data: a tail of zeros.
    if random.random() < 0.5 and end - start > len(tail):
        _resize(tail, end - start)
    with memoryview(event.data) as data:
        for sector in range(sectors):
            if coins >> sector & 1:
                begin = max(event.position, (first_sector + sector) * SECTOR_BYTES)
                stop = min(end, (first_sector + sector + 1) * SECTOR_BYTES)
                _put(tail, begin - start, data[begin - event.position : stop - event.position])
