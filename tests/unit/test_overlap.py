"""What an append says that a log does not hold yet, against every small log and every small append."""

from itertools import product

import pytest

from lograft.metadata_quorum.core.overlap import Append, Entry, what_is_new

pytestmark = pytest.mark.requirement("R24")


class Log:
    """A follower's log from ``first`` on; ``terms`` has one for each entry."""

    def __init__(self, first: int, terms: tuple[int, ...]) -> None:
        self.first = first
        self.terms = terms

    @property
    def last(self) -> int:
        return self.first + len(self.terms) - 1

    def term_at(self, index: int) -> int:
        assert self.first <= index <= self.last
        return self.terms[index - self.first]

    def reduce(self, append: Append) -> Append:
        return what_is_new(append, first_index=self.first, last_index=self.last, term_at=self.term_at)


def append(previous: int, previous_term: int, *terms: int, commit: int = 0) -> Append:
    entries = [Entry(b"", previous + n, term) for n, term in enumerate(terms, 1)]
    return Append(previous, previous_term, entries, commit)


def test_append_when_it_follows_the_log_then_is_handed_on_whole() -> None:
    given = append(3, 1, 1, 2, commit=5)
    assert Log(1, (0, 1, 1)).reduce(given) == Append(3, 1, given.entries, 5)


def test_append_when_part_of_it_is_there_then_the_rest_is_handed_on() -> None:
    new = Log(1, (0, 1, 1)).reduce(append(1, 0, 1, 1, 2, commit=4))
    assert (new.previous_index, new.previous_term, [e.index for e in new.entries], new.commit_index) == (3, 1, [4], 4)
    assert (new.next_index, new.cut_from) == (None, None)


@pytest.mark.parametrize("terms", [(), (1,), (1, 1)])
def test_append_when_all_of_it_is_there_then_nothing_is_cut_and_no_more_confirmed(terms: tuple[int, ...]) -> None:
    new = Log(1, (0, 1, 1, 1, 1)).reduce(append(2, 1, *terms, commit=9))
    end = 2 + len(terms)
    assert new == Append(5, 1, (), end, next_index=end + 1)


def test_append_when_an_entry_differs_then_cuts_from_there() -> None:
    new = Log(1, (0, 1, 1, 1)).reduce(append(1, 0, 1, 2, commit=9))
    assert (new.previous_index, [e.index for e in new.entries], new.cut_from, new.commit_index) == (2, [3], 3, 3)


def test_append_when_there_is_a_gap_or_another_entry_before_it_then_is_left_to_the_library() -> None:
    log = Log(1, (0, 1))
    for given in (append(5, 1, 1, commit=5), append(2, 7, 7, commit=5)):
        assert log.reduce(given) is given


def test_append_when_it_reaches_below_the_log_then_only_the_rest_counts() -> None:
    log = Log(10, (3, 3, 4))
    assert log.reduce(append(5, 2, 2, 3, commit=7)) == Append(12, 4, (), 7, next_index=8)
    new = log.reduce(append(8, 3, 3, 3, 3, 4, 5, commit=13))
    assert (new.previous_index, [e.index for e in new.entries], new.commit_index) == (12, [13], 13)


def stored_after(log: Log, new: Append) -> dict[int, int] | None:
    """What the library makes of it: index to term, or None if it refuses."""
    if not log.first <= new.previous_index <= log.last or log.term_at(new.previous_index) != new.previous_term:
        return None
    kept = {i: log.term_at(i) for i in range(log.first, new.previous_index + 1)}
    return kept | {entry.index: entry.term for entry in new.entries}


# Terms of a log never go back.
RISING = [terms for n in range(1, 5) for terms in product((1, 2, 3), repeat=n) if list(terms) == sorted(terms)]


def test_append_when_tried_on_every_small_log_then_does_what_raft_says() -> None:
    checked = 0
    for first, mine, theirs in product((1, 3), RISING, RISING):
        log = Log(first, mine)
        leader = {first + n: term for n, term in enumerate(theirs)}
        if mine[0] != theirs[0]:
            continue  # the first entry is committed: every leader has it
        # By Raft's log matching, logs that share an entry agree before it.
        shared = [i for i in leader if i <= log.last and log.term_at(i) == leader[i]]
        if shared and any(log.term_at(i) != leader[i] for i in range(first, max(shared) + 1)):
            continue
        for previous in range(first, max(leader) + 1):
            for count in range(max(leader) - previous + 1):
                terms = [leader[i] for i in range(previous + 1, previous + count + 1)]
                new = log.reduce(append(previous, leader[previous], *terms, commit=99))
                stored = stored_after(log, new)
                matches = previous <= log.last and log.term_at(previous) == leader[previous]
                assert (stored is not None) == matches
                if stored is None:
                    continue
                checked += 1
                end = previous + count
                assert all(stored[i] == leader[i] for i in range(first, end + 1))
                conflict = any(i <= log.last and log.term_at(i) != leader[i] for i in range(previous + 1, end + 1))
                kept = set(range(first, log.last + 1)) <= set(stored)
                assert kept or conflict
                assert (new.cut_from is not None) == conflict
                assert new.commit_index == end
                assert (new.next_index or max(stored) + 1) == end + 1
    assert checked > 300
