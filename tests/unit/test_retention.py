"""Which segments may go, and whether the clock can be believed."""

import pytest

from lograft.storage.core.retention import ClockWatch, SegmentFacts, expired_segments

DAY_MS = 24 * 3_600_000
MINUTE_MS = 60_000


def facts(*stamps_ms: int, size: int = 100) -> list[SegmentFacts]:
    """Segments of ten offsets each, with the time of their newest append."""
    return [SegmentFacts(10 * n, 10 * n + 10, size, stamp) for n, stamp in enumerate(stamps_ms)]


def expired(
    segments: list[SegmentFacts],
    *,
    now: int = 0,
    ms: int | None = None,
    size: int | None = None,
    hw: int = 10**9,
    start: int = 0,
) -> int:
    return expired_segments(
        segments, now_ms=now, retention_ms=ms, retention_bytes=size, high_watermark=hw, log_start_offset=start
    )


def test_expired_when_there_is_no_limit_then_nothing_goes() -> None:
    assert expired(facts(1, 2, 3), now=10**12) == 0


@pytest.mark.requirement("R7")
@pytest.mark.parametrize(("now", "count"), [(1100, 0), (1101, 1), (1201, 2), (10**9, 2)])
def test_expired_when_by_time_then_only_what_is_wholly_older_and_never_the_active(now: int, count: int) -> None:
    assert expired(facts(1000, 1100, 1200), now=now, ms=100) == count


@pytest.mark.requirement("R7")
@pytest.mark.parametrize(("limit", "count"), [(401, 0), (400, 0), (301, 0), (300, 1), (200, 2), (100, 3), (0, 3)])
def test_expired_when_by_size_then_at_least_the_limit_stays(limit: int, count: int) -> None:
    assert expired(facts(1, 2, 3, 4), size=limit) == count


@pytest.mark.requirement("R7")
@pytest.mark.parametrize(("hw", "count"), [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2)])
def test_expired_when_above_the_high_watermark_then_stays(hw: int, count: int) -> None:
    assert expired(facts(1, 2, 3), now=10**9, ms=1, hw=hw) == count
    assert expired(facts(1, 2, 3), size=0, hw=hw) == count


@pytest.mark.parametrize(("start", "count"), [(0, 0), (9, 0), (10, 1), (25, 2), (30, 2)])
def test_expired_when_below_the_log_start_then_goes_without_any_limit(start: int, count: int) -> None:
    assert expired(facts(1, 2, 3), start=start) == count


def test_expired_when_an_older_segment_must_stay_then_later_ones_stay_too() -> None:
    segments = facts(1, 2, 3)
    segments[0] = segments[0]._replace(newest_append_ms=2)
    assert expired(segments, now=103, ms=100, hw=5) == 0


def test_expired_when_there_is_only_the_active_segment_then_nothing_goes() -> None:
    assert expired(facts(1), now=10**9, ms=0, size=0) == 0


def test_expired_when_a_clock_was_ahead_for_a_while_then_later_segments_correct_the_stamp() -> None:
    ahead = 1000 + 365 * DAY_MS
    segments = facts(1000, ahead, 1200, 1300)
    # The segment stamped a year ahead was finished before 1200, whatever its stamp says.
    assert expired(segments, now=1251, ms=100) == 1
    assert expired(segments, now=1301, ms=100) == 3


def test_expired_when_the_active_segment_is_empty_then_its_missing_stamp_corrects_nothing() -> None:
    segments = [*facts(1000, 1100), SegmentFacts(20, 20, 0, 0)]
    assert expired(segments, now=1101, ms=100) == 1
    assert expired(segments, now=1100, ms=100) == 0


def test_expired_when_the_last_stamp_is_wrong_then_it_is_believed() -> None:
    # Nothing later says otherwise: such a segment stays until its stamp is old, or a later one corrects it.
    assert expired([*facts(1000, 10**15), SegmentFacts(20, 20, 0, 0)], now=10**12, ms=100) == 1


# --- the clock


def watch() -> ClockWatch:
    return ClockWatch(wall_ms=1_000_000, steady_ms=500)


def test_clock_when_both_move_alike_then_may_delete() -> None:
    seen = watch()
    for hours in range(1, 200):
        seen = seen.observe(1_000_000 + hours * 60 * MINUTE_MS, 500 + hours * 60 * MINUTE_MS)
        assert seen.may_delete


@pytest.mark.parametrize(("ahead_ms", "believed"), [(5 * MINUTE_MS, True), (5 * MINUTE_MS + 1, False)])
def test_clock_when_it_jumps_ahead_beyond_the_tolerance_then_suspends(ahead_ms: int, believed: bool) -> None:
    assert watch().observe(1_000_000 + 1000 + ahead_ms, 500 + 1000).may_delete is believed


@pytest.mark.requirement("R7")
def test_clock_when_it_is_far_ahead_and_mended_then_may_delete_at_once() -> None:
    jumped = watch().observe(1_000_000 + 365 * DAY_MS, 1500)
    assert not jumped.may_delete
    still = jumped.observe(1_000_000 + 365 * DAY_MS + MINUTE_MS, 1500 + MINUTE_MS)
    assert not still.may_delete
    mended = still.observe(1_000_000 + 2 * MINUTE_MS, 500 + 2 * MINUTE_MS)
    assert mended.may_delete
    # And the next jump is seen again.
    assert not mended.observe(1_000_000 + 365 * DAY_MS, 500 + 3 * MINUTE_MS).may_delete


def test_clock_when_the_hold_is_over_then_believes_the_new_time() -> None:
    year = 1_000_000 + 365 * DAY_MS
    jumped = watch().observe(year, 1500)
    hold = ClockWatch.HOLD_MS
    assert not jumped.observe(year + hold - 1, 1500 + hold - 1).may_delete
    believed = jumped.observe(year + hold, 1500 + hold)
    assert believed.may_delete
    assert believed.observe(year + hold + MINUTE_MS, 1500 + hold + MINUTE_MS).may_delete


def test_clock_when_it_goes_back_then_may_delete_since_nothing_looks_older() -> None:
    back = watch().observe(1_000_000 - DAY_MS, 1500)
    assert back.may_delete
    # Put right again it is a jump ahead: better wait than believe.
    assert not back.observe(1_000_000 + 2000, 2500).may_delete


def test_clock_when_the_jump_grows_while_suspended_then_the_hold_counts_from_the_first() -> None:
    jumped = watch().observe(1_000_000 + DAY_MS, 1500)
    further = jumped.observe(1_000_000 + 9 * DAY_MS, 2500)
    assert not further.may_delete
    assert further.observe(1_000_000 + 9 * DAY_MS, 1500 + ClockWatch.HOLD_MS).may_delete


def test_clock_when_the_machine_slept_then_steady_counts_and_nothing_is_suspended() -> None:
    assert watch().observe(1_000_000 + 3 * DAY_MS, 500 + 3 * DAY_MS).may_delete
