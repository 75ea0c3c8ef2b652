"""What an append really says that we do not know yet (row 1 of the library's hazards).

The library cuts a follower's log after the message's previous index whenever the log is longer, even if the entries
are the same ones. An entry that the leader has already counted as stored would vanish for a moment; if the leader dies
just then, a committed entry is lost. So a message is reduced before the library sees it: what the log holds already is
taken out, and only a true conflict cuts anything.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Entry(NamedTuple):
    """One entry of the log, as the library keeps it."""

    command: bytes
    index: int  # type: ignore[assignment]  # nobody wants the tuple's own
    term: int


class Append(NamedTuple):
    """An append as it is handed on."""

    previous_index: int
    previous_term: int
    entries: Sequence[Entry]
    commit_index: int
    # What to answer instead of the end of our log: the leader may only count what it sent.
    next_index: int | None = None
    # Where our log is cut, if it is.
    cut_from: int | None = None


def what_is_new(append: Append, *, first_index: int, last_index: int, term_at: Callable[[int], int]) -> Append:
    """Reduce ``append`` to what the log from ``first_index`` to ``last_index`` does not hold.

    ``first_index`` stands for everything before it: it is committed, so whatever a leader says about it agrees with us.
    """
    previous_index, previous_term, entries = append.previous_index, append.previous_term, append.entries
    end = previous_index + len(entries)
    if previous_index > last_index:
        return append  # a gap: the library refuses it and says where our log ends
    if previous_index < first_index:
        if end < first_index:
            # All of it lies in our snapshot.
            return _already_there(append, last_index, term_at)
        entries = entries[first_index - previous_index :]
        previous_index, previous_term = first_index, term_at(first_index)
    elif term_at(previous_index) != previous_term:
        return append  # the library refuses it and steps back
    agreed = 0
    for entry in entries:
        if entry.index > last_index or term_at(entry.index) != entry.term:
            break
        agreed += 1
    at = previous_index + agreed
    rest = entries[agreed:]
    if not rest and at < last_index:
        return _already_there(append, last_index, term_at)
    return Append(
        at,
        term_at(at),
        rest,
        min(append.commit_index, end),
        cut_from=at + 1 if rest and at < last_index else None,
    )


def _already_there(append: Append, last_index: int, term_at: Callable[[int], int]) -> Append:
    """An empty append at the end of our log, which cuts nothing, confirming no more than was sent."""
    end = append.previous_index + len(append.entries)
    return Append(last_index, term_at(last_index), (), min(append.commit_index, end), next_index=end + 1)
