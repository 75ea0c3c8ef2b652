"""Leader epochs and where they began: what two replicas compare to find where their logs part."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lograft.storage.core.epoch_history import EpochHistory


def history(*entries: tuple[int, int]) -> EpochHistory:
    return EpochHistory([epoch for epoch, _ in entries], [start for _, start in entries])


def test_latest_when_nothing_was_noted_then_is_none() -> None:
    empty = EpochHistory()
    assert empty.latest is None
    assert empty.entries() == []
    assert empty.epoch_at(0) is None
    assert empty.end_of(7, 100) is None


def test_note_when_epochs_ascend_then_keeps_each_with_its_start() -> None:
    epochs = EpochHistory()
    epochs.note(1, 0)
    epochs.note(4, 10)
    assert epochs.entries() == [(1, 0), (4, 10)]
    assert epochs.latest == 4


@pytest.mark.parametrize("epoch", [0, 3, 4])
def test_note_when_epoch_is_known_or_older_then_changes_nothing(epoch: int) -> None:
    epochs = history((1, 0), (4, 10))
    epochs.note(epoch, 12)
    assert epochs.entries() == [(1, 0), (4, 10)]


def test_note_when_an_epoch_wrote_nothing_then_the_next_takes_its_place() -> None:
    epochs = history((1, 0))
    epochs.note(2, 10)
    epochs.note(3, 10)
    assert epochs.entries() == [(1, 0), (3, 10)]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(0, None), (1, (1, 10)), (2, (1, 10)), (4, (4, 25)), (5, (4, 25)), (6, (6, 30)), (99, (6, 30))],
)
def test_end_of_when_asked_for_an_epoch_then_names_the_newest_not_above_and_its_end(
    asked: int, answer: tuple[int, int] | None
) -> None:
    assert history((1, 0), (4, 10), (6, 25)).end_of(asked, 30) == answer


@pytest.mark.parametrize(("offset", "epoch"), [(4, None), (5, 1), (9, 1), (10, 4), (1000, 4)])
def test_epoch_at_when_asked_for_an_offset_then_names_its_epoch(offset: int, epoch: int | None) -> None:
    assert history((1, 5), (4, 10)).epoch_at(offset) == epoch


@pytest.mark.parametrize(
    ("end", "left"), [(0, []), (1, [(1, 0)]), (10, [(1, 0)]), (11, [(1, 0), (4, 10)]), (99, [(1, 0), (4, 10)])]
)
def test_truncate_end_when_epochs_begin_at_or_after_it_then_forgets_them(end: int, left: list[tuple[int, int]]) -> None:
    epochs = history((1, 0), (4, 10))
    epochs.truncate_end(end)
    assert epochs.entries() == left


@pytest.mark.parametrize(
    ("start", "left"),
    [(0, [(1, 2), (4, 10)]), (2, [(1, 2), (4, 10)]), (7, [(1, 7), (4, 10)]), (10, [(4, 10)]), (50, [(4, 50)])],
)
def test_truncate_start_when_records_below_are_gone_then_the_epoch_there_begins_there(
    start: int, left: list[tuple[int, int]]
) -> None:
    epochs = history((1, 2), (4, 10))
    epochs.truncate_start(start)
    assert epochs.entries() == left


def test_copy_when_changed_then_leaves_the_original() -> None:
    epochs = history((1, 0))
    copied = epochs.copy()
    copied.note(2, 5)
    assert epochs.entries() == [(1, 0)]
    assert copied.entries() == [(1, 0), (2, 5)]


@given(
    st.lists(
        st.tuples(st.sampled_from(["note", "end", "start"]), st.integers(0, 8), st.integers(0, 30)),
        max_size=30,
    )
)
def test_entries_when_anything_was_done_then_ascend_strictly(steps: list[tuple[str, int, int]]) -> None:
    epochs = EpochHistory()
    start = 0
    for what, epoch, offset in steps:
        if what == "note":
            epochs.note(epoch, max(offset, start))
        elif what == "end":
            epochs.truncate_end(offset)
        else:
            start = max(start, offset)
            epochs.truncate_start(start)
        entries = epochs.entries()
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(entries))
