"""Which leader epoch began at which offset: what two replicas compare to find where their logs part."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field


@dataclass(slots=True)
class EpochHistory:
    """Epochs and their first offsets. Both ascend strictly, entry by entry."""

    epochs: list[int] = field(default_factory=list)
    start_offsets: list[int] = field(default_factory=list)

    @property
    def latest(self) -> int | None:
        """The newest epoch seen; None before the first."""
        return self.epochs[-1] if self.epochs else None

    def note(self, epoch: int, start_offset: int) -> None:
        """Record that ``epoch`` writes at ``start_offset``; if it began earlier, nothing changes.

        Epochs that began at or after ``start_offset`` wrote nothing that is left, and give way: also newer ones, which
        a leader had noted that never wrote before another led.
        """
        if self.epochs and epoch == self.epochs[-1]:
            return
        self.truncate_end(start_offset)
        if self.epochs and epoch <= self.epochs[-1]:
            return
        self.epochs.append(epoch)
        self.start_offsets.append(start_offset)

    def end_of(self, epoch: int, log_end_offset: int) -> tuple[int, int] | None:
        """The largest known epoch that is not above ``epoch``, and where it ends (exclusive).

        None if every known epoch is newer: the logs have nothing in common that is still here.
        """
        index = bisect_right(self.epochs, epoch) - 1
        if index < 0:
            return None
        is_last = index + 1 == len(self.epochs)
        return self.epochs[index], log_end_offset if is_last else self.start_offsets[index + 1]

    def epoch_at(self, offset: int) -> int | None:
        """The epoch in which ``offset`` was (or would be) written."""
        index = bisect_right(self.start_offsets, offset) - 1
        return self.epochs[index] if index >= 0 else None

    def truncate_end(self, end_offset: int) -> None:
        """Forget epochs that begin at or after ``end_offset``."""
        keep = bisect_left(self.start_offsets, end_offset)
        del self.epochs[keep:], self.start_offsets[keep:]

    def truncate_start(self, start_offset: int) -> None:
        """Forget epochs that end at or before ``start_offset``; the one it lies in now begins there."""
        index = bisect_right(self.start_offsets, start_offset) - 1
        if index < 0:
            return
        del self.epochs[:index], self.start_offsets[:index]
        self.start_offsets[0] = start_offset

    def entries(self) -> list[tuple[int, int]]:
        """Pairs of epoch and first offset, oldest first."""
        return list(zip(self.epochs, self.start_offsets, strict=True))

    def copy(self) -> "EpochHistory":
        """An independent copy."""
        return EpochHistory(self.epochs.copy(), self.start_offsets.copy())
