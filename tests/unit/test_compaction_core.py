"""Which records compaction keeps."""

from collections.abc import Sequence

import pytest

from lograft.contract.batch import Batch
from lograft.contract.records import RecordColumns, decode_batch, encode_batch
from lograft.storage.core.compaction import (
    BatchVerdict,
    CompactionRules,
    Drop,
    Keep,
    Rewrite,
    compacted_batch,
    is_worth_compacting,
    segment_groups,
)

A, B, C = b"a", b"b", b"c"


def batch_at(offset: int, keys: Sequence[bytes | None], values: Sequence[bytes | None], horizon_ms: int = 0) -> Batch:
    batch = encode_batch(values, keys=keys, timestamps_ms=0)
    return Batch(batch.header._replace(base_offset=offset, delete_horizon_ms=horizon_ms), batch.records)


def verdict(
    batch: Batch,
    newest: dict[bytes, int],
    *,
    known_end: int = 1000,
    now_ms: int = 500,
    producers: frozenset[int] = frozenset(),
    is_last: bool = False,
    columns: RecordColumns | None = None,
) -> BatchVerdict:
    rules = CompactionRules(now_ms, 100, producers, known_end)
    columns = decode_batch(batch) if columns is None else columns
    return compacted_batch(batch.header, columns, newest, rules, is_last=is_last)


@pytest.mark.requirement("R8")
def test_batch_when_all_its_records_are_newest_then_stays_as_it_is() -> None:
    assert verdict(batch_at(10, [A, B], [b"1", b"2"]), {A: 10, B: 11}) == Keep()


@pytest.mark.requirement("R8")
def test_batch_when_some_keys_have_newer_records_then_keeps_the_others() -> None:
    assert verdict(batch_at(10, [A, B, A], [b"1", b"2", b"3"]), {A: 12, B: 40}) == Rewrite([False, False, True], 0)


def test_batch_when_a_key_was_not_seen_in_the_new_part_then_its_record_stays() -> None:
    assert verdict(batch_at(10, [A, C], [b"1", b"2"]), {A: 99}) == Rewrite([False, True], 0)


def test_batch_when_nothing_of_it_is_newest_then_is_dropped() -> None:
    assert verdict(batch_at(10, [A], [b"1"]), {A: 99}) == Drop()


def test_batch_when_it_is_the_last_of_its_segment_then_its_header_stays() -> None:
    assert verdict(batch_at(10, [A], [b"1"]), {A: 99}, is_last=True) == Rewrite([False], 0)


@pytest.mark.requirement("R8", "R15")
def test_batch_when_it_is_a_producers_last_then_its_header_stays() -> None:
    batch = batch_at(10, [A], [b"1"])
    assert verdict(batch, {A: 99}, producers=frozenset({10})) == Rewrite([False], 0)
    assert verdict(batch, {A: 99}, producers=frozenset({11})) == Drop()


def test_batch_when_records_have_no_key_then_they_stay() -> None:
    assert verdict(batch_at(10, [None, A], [b"1", b"2"]), {A: 99}) == Rewrite([True, False], 0)
    without = encode_batch([b"1"], timestamps_ms=0)
    assert verdict(without, {A: 99}) == Keep()


@pytest.mark.parametrize(("known_end", "expected"), [(10, Keep()), (11, Keep()), (12, Drop())])
def test_batch_when_it_reaches_beyond_what_is_known_then_stays(known_end: int, expected: BatchVerdict) -> None:
    assert verdict(batch_at(10, [A, A], [b"1", b"2"]), {A: 99}, known_end=known_end) == expected


@pytest.mark.requirement("R8")
def test_tombstone_when_first_seen_then_gets_a_horizon_and_stays() -> None:
    assert verdict(batch_at(10, [A, B], [None, b"2"]), {A: 10}) == Rewrite([True, True], 600)


@pytest.mark.requirement("R8")
@pytest.mark.parametrize(("now_ms", "expected"), [(599, Keep()), (600, Drop())])
def test_tombstone_when_its_horizon_has_passed_then_goes(now_ms: int, expected: BatchVerdict) -> None:
    assert verdict(batch_at(10, [A], [None], horizon_ms=600), {A: 10}, now_ms=now_ms) == expected


def test_tombstone_when_its_horizon_has_passed_then_values_beside_it_stay() -> None:
    batch = batch_at(10, [A, B], [None, b"2"], horizon_ms=600)
    assert verdict(batch, {}, now_ms=600) == Rewrite([False, True], 600)


def test_tombstone_when_its_key_has_a_newer_record_then_goes_at_once_and_sets_no_horizon() -> None:
    assert verdict(batch_at(10, [A, B], [None, b"2"]), {A: 50}) == Rewrite([False, True], 0)


def test_batch_when_it_is_empty_then_stays_only_while_its_header_is_needed() -> None:
    batch = batch_at(10, [A], [b"1"])
    empty = RecordColumns([], [], [])
    assert verdict(batch, {}, columns=empty) == Drop()
    assert verdict(batch, {}, columns=empty, is_last=True) == Keep()
    assert verdict(batch, {}, columns=empty, producers=frozenset({10})) == Keep()


@pytest.mark.parametrize(
    ("clean", "dirty", "ratio", "worth"),
    [
        (0, 0, 0.5, False),
        (100, 0, 0.0, False),
        (0, 1, 0.5, True),
        (100, 99, 0.5, False),
        (100, 100, 0.5, True),
        (100, 1, 0.0, True),
        (0, 5, 1.0, True),
        (1, 500, 1.0, False),
    ],
)
def test_compaction_when_enough_is_new_then_is_worth_it(clean: int, dirty: int, ratio: float, worth: bool) -> None:
    assert is_worth_compacting(clean, dirty, ratio) is worth


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([], []),
        ([10], [[0]]),
        ([500], [[0]]),
        ([40, 60], [[0, 1]]),
        ([40, 61], [[0], [1]]),
        ([40, 40, 40, 10, 10, 200, 5], [[0, 1], [2, 3, 4], [5], [6]]),
        ([0, 0, 100, 0], [[0, 1, 2, 3]]),
    ],
)
def test_segments_when_they_fit_together_then_form_one_group(sizes: list[int], groups: list[list[int]]) -> None:
    bases = [10 * number for number in range(len(sizes))]
    assert [list(group) for group in segment_groups(bases, sizes, 100)] == groups


def test_segments_when_their_offsets_are_too_far_apart_for_an_index_then_form_two_groups() -> None:
    assert [list(group) for group in segment_groups([0, 10, 1 << 33], [1, 1, 1], 100)] == [[0, 1], [2]]
