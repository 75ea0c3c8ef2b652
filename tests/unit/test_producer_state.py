"""Idempotent producers: repeats are recognised, gaps and fenced incarnations refused, lost appends taken back."""

import pytest

from lograft.contract.batch import SEQUENCE_LIMIT, BatchHeader
from lograft.contract.records import encode_batch
from lograft.storage.core.producer_state import Accepted, Duplicate, Fenced, OutOfOrder, ProducerStates


def header(sequence: int, *, offset: int = 0, count: int = 1, producer: int = 7, epoch: int = 0, at_ms: int = 1000):
    batch = encode_batch(
        [b""] * count, timestamps_ms=0, producer_id=producer, producer_epoch=epoch, base_sequence=sequence
    )
    return batch.header._replace(base_offset=offset, append_timestamp_ms=at_ms)


def states(*headers: BatchHeader, remembered: int = 5) -> ProducerStates:
    made = ProducerStates(remembered)
    for one in headers:
        made.note(one)
    return made


def test_check_when_producer_is_not_idempotent_then_accepts_and_remembers_nothing() -> None:
    plain = header(0, producer=0)
    made = states(plain, plain)
    assert made.check(plain) == Accepted()
    assert len(made) == 0


def test_check_when_producer_is_unknown_then_accepts_any_sequence() -> None:
    assert states().check(header(123)) == Accepted()


@pytest.mark.requirement("R15")
def test_check_when_batch_is_next_then_accepts() -> None:
    assert states(header(0, count=3)).check(header(3)) == Accepted()


@pytest.mark.requirement("R15")
def test_check_when_batch_was_appended_then_answers_with_its_offsets() -> None:
    made = states(header(0, offset=10, count=3, at_ms=5), header(3, offset=20, count=2, at_ms=6))
    assert made.check(header(0, count=3)) == Duplicate(10, 12, 5)
    assert made.check(header(3, count=2)) == Duplicate(20, 21, 6)


@pytest.mark.parametrize("sequence", [0, 2, 4, 100])
def test_check_when_batch_skips_or_overlaps_then_says_what_is_expected(sequence: int) -> None:
    # Sequence 0 with another count is no repeat of the first batch, and what it overlaps cannot be told.
    assert states(header(0, count=3)).check(header(sequence, count=2)) == OutOfOrder(3)


def test_check_when_repeat_is_older_than_what_is_remembered_then_is_out_of_order() -> None:
    made = states(*(header(n, offset=n) for n in range(7)), remembered=5)
    assert made.check(header(2)) == Duplicate(2, 2, 1000)
    assert made.check(header(1)) == OutOfOrder(7)


def test_check_when_one_batch_is_remembered_then_only_the_last_is_a_repeat() -> None:
    made = states(header(0), header(1, offset=1), remembered=1)
    assert made.check(header(1)) == Duplicate(1, 1, 1000)
    assert made.check(header(0)) == OutOfOrder(2)


def test_check_when_sequence_reaches_its_limit_then_goes_on_at_zero() -> None:
    last = SEQUENCE_LIMIT - 1
    made = states(header(last - 1, count=2))
    assert made.check(header(0)) == Accepted()
    around = states(header(last, count=3, offset=9))
    assert around.check(header(2)) == Accepted()
    assert around.check(header(last, count=3)) == Duplicate(9, 11, 1000)


def test_check_when_incarnation_is_older_then_is_fenced_and_newer_starts_at_zero() -> None:
    made = states(header(0, epoch=3))
    assert made.check(header(1, epoch=2)) == Fenced(3)
    assert made.check(header(1, epoch=4)) == OutOfOrder(0)
    assert made.check(header(0, epoch=4)) == Accepted()


def test_note_when_incarnation_is_new_then_forgets_batches_of_the_old() -> None:
    made = states(header(0, epoch=3), header(0, epoch=4, offset=5))
    assert made.check(header(0, epoch=4)) == Duplicate(5, 5, 1000)
    assert [len(entry.batches) for _, entry in made.entries()] == [1]


def test_undo_to_when_appends_were_refused_then_is_as_before_them() -> None:
    made = states(header(0, offset=0), header(0, offset=1, producer=8))
    before = made.entries()
    made.note(header(1, offset=2))
    made.note(header(0, offset=3, producer=9))
    made.note(header(0, offset=4, epoch=1))
    made.undo_to(2)
    assert made.entries() == before
    assert made.check(header(1)) == Accepted()
    made.undo_to(0)
    assert len(made) == 0


def test_settle_to_when_batches_are_durable_then_they_are_not_taken_back() -> None:
    made = states(header(0, offset=0), header(1, offset=1))
    made.settle_to(1)
    made.undo_to(0)
    assert made.check(header(0)) == Duplicate(0, 0, 1000)
    assert made.check(header(1)) == Accepted()


def test_forget_idle_when_producer_was_quiet_too_long_then_forgets_only_it() -> None:
    made = states(header(0, at_ms=1000), header(0, producer=8, offset=1, at_ms=2000))
    made.settle_to(2)
    assert made.forget_idle(2000, 1000) == 0
    assert made.forget_idle(2001, 1000) == 1
    assert [producer for producer, _ in made.entries()] == [8]


def test_forget_idle_when_an_append_is_not_settled_then_keeps_its_producer() -> None:
    made = states(header(0, at_ms=0))
    assert made.forget_idle(10**9, 1) == 0
    made.settle_to(1)
    assert made.forget_idle(10**9, 1) == 1


def test_last_batch_offsets_when_producers_wrote_then_names_the_newest_of_each() -> None:
    made = states(header(0, offset=0), header(1, offset=5), header(0, offset=9, producer=8))
    assert made.last_batch_offsets() == {5, 9}


def test_states_when_built_from_entries_then_go_on_as_the_original() -> None:
    made = states(header(0, offset=0), header(1, offset=5), header(0, offset=9, producer=8))
    again = ProducerStates(5, made.entries())
    assert again.entries() == made.entries()
    assert again.check(header(0)) == Duplicate(0, 0, 1000)
    assert again.check(header(2)) == Accepted()
