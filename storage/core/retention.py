"""Which closed segments may go, and whether the clock can be believed when it says so."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple


class SegmentFacts(NamedTuple):
    """What retention needs to know of a segment."""

    base_offset: int
    next_offset: int
    size_bytes: int
    newest_append_ms: int


def expired_segments(
    segments: Sequence[SegmentFacts],
    *,
    now_ms: int,
    retention_ms: int | None,
    retention_bytes: int | None,
    high_watermark: int,
    log_start_offset: int,
) -> int:
    """How many of the oldest segments may be deleted. The last one is the active segment and always stays.

    Nothing at or above the high watermark goes. A segment goes when it lies wholly below the log start, when all of it
    is older than ``retention_ms``, or while the log without it is still at least ``retention_bytes`` large.
    """
    ages_from = _append_times(segments)
    remaining_bytes = sum(segment.size_bytes for segment in segments)
    expired = 0
    for segment, appended_ms in zip(segments[:-1], ages_from, strict=False):
        if segment.next_offset > high_watermark:
            break
        below_start = segment.next_offset <= log_start_offset
        too_old = retention_ms is not None and now_ms - appended_ms > retention_ms
        too_large = retention_bytes is not None and remaining_bytes - segment.size_bytes >= retention_bytes
        if not (below_start or too_old or too_large):
            break
        remaining_bytes -= segment.size_bytes
        expired += 1
    return expired


def _append_times(segments: Sequence[SegmentFacts]) -> list[int]:
    """When each segment was really finished, as far as the stamps tell.

    A segment was finished before any later one. If the clock was ahead for a while, the stamps of later segments are
    lower: they correct it, and one wrong moment does not keep everything before it for ever.
    """
    times: list[int] = []
    earliest_later: int | None = None
    for segment in reversed(segments):
        stamp = segment.newest_append_ms
        if segment.next_offset > segment.base_offset:  # an empty active segment has no stamp
            earliest_later = stamp if earliest_later is None else min(stamp, earliest_later)
        times.append(stamp if earliest_later is None else earliest_later)
    times.reverse()
    return times


@dataclass(frozen=True, slots=True)
class ClockWatch:
    """Compares the wall clock with a clock that cannot be set, to notice a jump.

    A forward jump makes everything look old. Deletion is then suspended for ``HOLD_MS``: long enough for the clock to
    be put right, or for a person to see the warning; after that the new time is believed.
    """

    wall_ms: int
    steady_ms: int
    suspended_until_steady_ms: int | None = None

    TOLERANCE_MS = 5 * 60_000
    HOLD_MS = 24 * 3_600_000

    def observe(self, wall_ms: int, steady_ms: int) -> "ClockWatch":
        """The watch after one more look at both clocks."""
        expected_ms = self.wall_ms + (steady_ms - self.steady_ms)
        if self.suspended_until_steady_ms is None:
            if wall_ms - expected_ms > self.TOLERANCE_MS:
                # The baseline stays what it was, so that going back is recognised as the mend.
                return replace(self, suspended_until_steady_ms=steady_ms + self.HOLD_MS)
            return ClockWatch(wall_ms, steady_ms)
        back_in_line = wall_ms - expected_ms <= self.TOLERANCE_MS
        if back_in_line or steady_ms >= self.suspended_until_steady_ms:
            return ClockWatch(wall_ms, steady_ms)
        return self

    @property
    def may_delete(self) -> bool:
        """Whether ages computed from the wall clock can be believed."""
        return self.suspended_until_steady_ms is None
