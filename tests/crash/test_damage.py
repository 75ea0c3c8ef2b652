"""Damage to any byte of any file of a log: never a wrong record, never a silent loss, never a loop of crashes.

A log of three segments is damaged in one place, inspected, opened twice and read. What may come out:

- exactly the original: the damage hit something that can be made again from the log, or was harmless;
- `StorageCorrupted`, at opening or at reading; then no segment file was changed, and it is the same the next time;
- a tail that was cut, reported and kept beside the log, above what the checkpoint vouched for.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import pytest

from lograft.contract.disk import Disk
from lograft.contract.errors import StorageCorrupted
from lograft.contract.records import Record, encode_batch
from lograft.contract.small_files import Kind, decode_small_file
from lograft.storage import LogConfig, PartitionLog
from lograft.storage.inspect import Damage, PartitionChecked, TornTail, inspect
from lograft.v1 import storage_pb2

pytestmark = pytest.mark.requirement("R9", "R27")

CONFIG = LogConfig(segment_bytes=1024, max_batch_bytes=1024, index_interval_bytes=100)
NOW_MS = 1_700_000_000_000
NAME = "damage-0"
END = 12
Files = dict[str, bytes]


class NoSyncs(Disk):
    """Nothing here is about power: thousands of openings need no syncs."""

    def sync_file(self, file: int) -> None:
        pass

    def sync_directory(self, path: Path) -> None:
        pass


@dataclass(frozen=True)
class Sound:
    """A log before it is damaged, and what it holds."""

    files: Files
    records: list[Record]
    epochs: list[tuple[int, int]]
    producers: list[object]
    # Everything below was synced, as the checkpoint says.
    flushed_end: int

    @property
    def segments(self) -> list[str]:
        return sorted(name for name in self.files if name.endswith(".log"))


def read_files(path: Path) -> Files:
    return {entry.name: entry.read_bytes() for entry in path.iterdir() if entry.name != ".lock"}


def put(path: Path, files: Files) -> None:
    """Make the directory hold exactly these files; what is as it shall be is left."""
    path.mkdir(exist_ok=True)
    there = read_files(path)
    for name in there.keys() - files.keys():
        (path / name).unlink()
    for name, content in files.items():
        if there.get(name) != content:
            (path / name).write_bytes(content)


def opened(path: Path) -> PartitionLog:
    return PartitionLog.open(path, CONFIG, disk=NoSyncs(), now_ms=lambda: NOW_MS)


def make(folder: Path, *, clean: bool) -> Sound:
    """Three segments of two batches of equal size; closed in good order, or as a crash leaves them."""
    path = folder / NAME
    log = PartitionLog.open(path, CONFIG, now_ms=lambda: NOW_MS, topic_id="t")
    for number in range(6):
        if number in (2, 4):
            log.roll()
        batch = encode_batch(
            [b"value %02d" % number, b"second"],
            keys=[b"k%d" % (number % 3), None],
            timestamps_ms=NOW_MS + number,
            producer_id=1 + number % 2,
            base_sequence=number // 2 * 2,
        )
        log.append(batch, leader_epoch=number // 3)
    log.flush()
    records, epochs, producers = list(log.records()), log.epochs.entries(), log.producers.entries()
    if clean:
        log.close()
    files = read_files(path)
    log.close()
    checkpoint = decode_small_file(files["checkpoint"], Kind.CHECKPOINT, storage_pb2.PartitionCheckpoint, path)
    assert [name for name in sorted(files) if name.endswith(".log")] == [f"{base:020d}.log" for base in (0, 4, 8)]
    assert len(records) == END
    return Sound(files, records, epochs, producers, checkpoint.flushed_end_offset)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Sound:
    sound = make(tmp_path_factory.mktemp("clean"), clean=True)
    assert sound.flushed_end == END
    return sound


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Sound:
    sound = make(tmp_path_factory.mktemp("crashed"), clean=False)
    assert sound.flushed_end == 8
    return sound


class Trial:
    """Damages a copy of a sound log, opens it, and judges what comes out."""

    def __init__(self, sound: Sound, folder: Path) -> None:
        self.sound = sound
        self.path = folder / NAME
        self.cases = 0
        self.found_by_inspection: set[str] = set()

    def run(self, files: Files, case: str) -> str:
        """The outcome: ``exact``, ``corrupted`` or ``cut``; anything else fails the test, naming the case."""
        self.cases += 1
        put(self.path, files)
        try:
            self.found_by_inspection = self._inspect(files)
            first = self._open(files)
            # Thousands of cases: not each is opened twice.
            second = self._open(read_files(self.path)) if self.cases % 5 <= 1 else first
        except Exception as error:
            raise AssertionError(f"{case}: {error!r}") from error
        # The next opening finds the same, or finds it in order.
        assert second == first or (first == "cut" and second == "exact"), f"{case}: {first}, then {second}"
        if first == "corrupted":
            assert self.found_by_inspection, f"{case}: corrupted, but the inspection found nothing"
        return first

    def _inspect(self, files: Files) -> set[str]:
        """The files of which the inspection says that they are damaged or torn; it changes nothing."""
        found = list(inspect(self.path, disk=NoSyncs()))
        assert isinstance(found[-1], PartitionChecked)
        assert read_files(self.path) == files
        return {finding.path.name for finding in found if isinstance(finding, Damage | TornTail)}

    def _open(self, files: Files) -> str:
        sound = self.sound
        try:
            with opened(self.path) as log:
                records = list(log.records())
                if records == sound.records:
                    assert log.epochs.entries() == sound.epochs
                    assert log.producers.entries() == sound.producers
                    assert (log.log_start_offset, log.log_end_offset) == (0, END)
                    return "exact"
                return self._judge_cut(log, records)
        except StorageCorrupted:
            self._check_nothing_is_gone(files)
            return "corrupted"

    def _check_nothing_is_gone(self, files: Files) -> None:
        """Segments are as they were; a tail above the checkpoint may have been cut off and kept (unless all zeros)."""
        now = read_files(self.path)
        for name in [name for name in now if ".log.cut-" in name and name not in files]:
            whole, _, position = name.rpartition(".cut-")
            assert len(now[whole]) == int(position)
            now[whole] += now.pop(name)
        for name, content in files.items():
            if ".log" in name:
                assert content == now[name] or content.rstrip(b"\0") == now[name].rstrip(b"\0"), f"{name} was changed"

    def _judge_cut(self, log: PartitionLog, records: list[Record]) -> str:
        assert records == self.sound.records[: len(records)], "wrong records"
        assert log.log_end_offset == len(records) >= self.sound.flushed_end, "less than the checkpoint vouched for"
        assert log.cut_bytes > 0, "records are gone, and nothing was said"
        for cut in log.recovery.cuts:
            assert cut.kept_as is None or Path(cut.kept_as).stat().st_size == cut.cut_bytes
        return "cut"


def file_names(sound_files: Iterable[str], *suffixes: str) -> list[str]:
    return sorted(name for name in sound_files if name.endswith(suffixes))


def positions(content: bytes, stride: int = 1) -> range:
    """Every byte of a small file, and every so many of a larger one."""
    return range(0, len(content), stride if len(content) < 2048 else 7)


def flipped(content: bytes, position: int) -> bytes:
    changed = bytearray(content)
    changed[position] ^= 1 << position % 8
    return bytes(changed)


CACHES = (".index", ".timeindex", ".producers", "checkpoint")


def test_bit_when_flipped_anywhere_in_a_segment_then_is_corruption(clean: Sound, tmp_path: Path) -> None:
    trial = Trial(clean, tmp_path)
    for name in clean.segments:
        for position in positions(clean.files[name], 1 if name == clean.segments[0] else 3):
            files = clean.files | {name: flipped(clean.files[name], position)}
            assert trial.run(files, f"bit of {position} in {name}") == "corrupted"
            assert trial.found_by_inspection == {name}
    assert trial.cases > 400


def test_bit_when_flipped_above_the_checkpoint_then_the_tail_from_there_is_cut(crashed: Sound, tmp_path: Path) -> None:
    trial = Trial(crashed, tmp_path)
    for name in crashed.segments:
        expected = "cut" if name == crashed.segments[-1] else "corrupted"
        for position in range(0, len(crashed.files[name]), 1 if expected == "cut" else 13):
            files = crashed.files | {name: flipped(crashed.files[name], position)}
            assert trial.run(files, f"bit of {position} in {name}") == expected
            assert name in trial.found_by_inspection


@pytest.mark.parametrize("state", ["clean", "crashed"])
def test_bit_when_flipped_anywhere_in_a_cache_then_nothing_is_lost(
    state: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    sound: Sound = request.getfixturevalue(state)
    trial = Trial(sound, tmp_path)
    for name in file_names(sound.files, *CACHES):
        # Files of the same kind are alike: every byte of one of them.
        whole = state == "clean" and (name == "checkpoint" or name.startswith(("0" * 20, "0" * 19 + "4.p")))
        for position in positions(sound.files[name], 1 if whole else 6):
            files = sound.files | {name: flipped(sound.files[name], position)}
            assert trial.run(files, f"bit of {position} in {name}") == "exact"


def test_bit_when_flipped_anywhere_in_the_meta_file_then_is_corruption(clean: Sound, tmp_path: Path) -> None:
    trial = Trial(clean, tmp_path)
    content = clean.files["partition.meta"]
    for position in positions(content):
        files = clean.files | {"partition.meta": flipped(content, position)}
        assert trial.run(files, f"bit of {position}") == "corrupted"


def test_file_when_cut_short_anywhere_then_is_made_again_or_is_corruption(clean: Sound, tmp_path: Path) -> None:
    trial = Trial(clean, tmp_path)
    for name, content in clean.files.items():
        expected = "exact" if name.endswith(CACHES) else "corrupted"
        for size in {*range(0, min(40, len(content)), 5), *range(40, len(content), 11), len(content) - 1}:
            assert trial.run(clean.files | {name: content[:size]}, f"{name} cut to {size}") == expected


def test_last_segment_when_cut_short_above_the_checkpoint_then_keeps_the_whole_batches(
    crashed: Sound, tmp_path: Path
) -> None:
    name = crashed.segments[-1]
    content = crashed.files[name]
    batch_bytes = len(content) // 2
    assert batch_bytes * 2 == len(content)
    trial = Trial(crashed, tmp_path)
    for size in {*range(0, len(content), 3), batch_bytes - 1, batch_bytes, batch_bytes + 1, len(content) - 1}:
        files = crashed.files | {name: content[:size]}
        if size % batch_bytes:
            assert trial.run(files, f"cut to {size}") == "cut"
            assert trial.found_by_inspection == {name}
            continue
        # Between two batches nothing tells that there was more: what never was acknowledged may be gone.
        put(trial.path, files)
        with opened(trial.path) as log:
            assert list(log.records()) == crashed.records[: 8 + 2 * (size // batch_bytes)]


@pytest.mark.parametrize("state", ["clean", "crashed"])
def test_file_when_it_vanishes_then_is_made_again_or_is_corruption(
    state: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    sound: Sound = request.getfixturevalue(state)
    trial = Trial(sound, tmp_path)
    for name in sound.files:
        if state == "crashed" and name == sound.segments[-1]:
            continue  # never vouched for: see the test before
        files = {other: content for other, content in sound.files.items() if other != name}
        expected = "exact" if name.endswith(CACHES) else "corrupted"
        assert trial.run(files, f"without {name}") == expected


def test_files_when_every_cache_vanishes_then_the_log_says_it_all(clean: Sound, tmp_path: Path) -> None:
    files = {name: content for name, content in clean.files.items() if not name.endswith(CACHES)}
    assert len(files) == 4
    assert Trial(clean, tmp_path).run(files, "without caches") == "exact"


@pytest.mark.parametrize("state", ["clean", "crashed"])
def test_file_when_something_follows_its_end_then_is_cut_made_again_or_corruption(
    state: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    sound: Sound = request.getfixturevalue(state)
    trial = Trial(sound, tmp_path)
    first = sound.files[sound.segments[0]]
    additions = [b"\0", b"x", bytes(7), bytes(115), bytes(5000), b"garbage " * 100, first, first[:120], b"\n"]
    for name, content in sound.files.items():
        for addition in additions:
            # Behind the end of the last segment is the place of a torn tail: nothing sound is lost with it.
            is_cache = name.endswith(CACHES) or name == sound.segments[-1]
            expected = "exact" if is_cache else "corrupted"
            case = f"{name} and {len(addition)} times {addition[:1]!r}"
            assert trial.run(sound.files | {name: content + addition}, case) == expected


@pytest.mark.parametrize(
    "what", [b"", b"This is a text file.\n" * 60, bytes(1024), b"\n"], ids=["empty", "text", "zeros", "line"]
)
def test_file_when_replaced_by_another_thing_then_is_made_again_or_is_corruption(
    clean: Sound, tmp_path: Path, what: bytes
) -> None:
    trial = Trial(clean, tmp_path)
    for name in clean.files:
        expected = "exact" if name.endswith(CACHES) else "corrupted"
        assert trial.run(clean.files | {name: what}, f"{name} replaced") == expected


SEGMENT_NAMES = {"in the middle": 2, "at the end": END, "behind the end": 99, "beyond all offsets": 10**20 - 1}


@pytest.mark.parametrize("what", [b"", b"This is a text file.\n", bytes(500)], ids=["empty", "text", "zeros"])
@pytest.mark.parametrize("where", SEGMENT_NAMES)
def test_file_when_only_named_like_a_segment_then_costs_no_record(
    clean: Sound, tmp_path: Path, where: str, what: bytes
) -> None:
    trial = Trial(clean, tmp_path)
    name = f"{SEGMENT_NAMES[where]:020d}.log"
    outcome = trial.run(clean.files | {name: what}, where)
    assert outcome == ("corrupted" if where == "in the middle" else "exact")
    if outcome == "exact" and any(what):
        # It is set aside or left alone, not thrown away.
        kept = [path.read_bytes() for path in trial.path.iterdir() if path.name.startswith(name)]
        assert what in kept


@pytest.mark.parametrize("state", ["clean", "crashed"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".producers"])
def test_caches_when_swapped_with_each_other_then_nothing_is_lost(
    state: str, suffix: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    sound: Sound = request.getfixturevalue(state)
    trial = Trial(sound, tmp_path)
    for one, other in combinations(file_names(sound.files, suffix), 2):
        files = sound.files | {one: sound.files[other], other: sound.files[one]}
        assert trial.run(files, f"{one} and {other} swapped") == "exact"


@pytest.mark.parametrize("pair", [(0, 1), (0, 2), (1, 2)], ids=str)
def test_segments_when_swapped_with_each_other_then_is_corruption(
    clean: Sound, tmp_path: Path, pair: tuple[int, int]
) -> None:
    one, other = (clean.segments[number] for number in pair)
    files = clean.files | {one: clean.files[other], other: clean.files[one]}
    assert Trial(clean, tmp_path).run(files, "swapped") == "corrupted"


def test_segments_when_swapped_without_their_indexes_then_is_corruption(clean: Sound, tmp_path: Path) -> None:
    trial = Trial(clean, tmp_path)
    without = {name: content for name, content in clean.files.items() if not name.endswith("index")}
    for one, other in combinations(clean.segments, 2):
        files = without | {one: without[other], other: without[one]}
        assert trial.run(files, f"{one} and {other} swapped") == "corrupted"


@pytest.mark.parametrize(
    "how",
    [
        "empty",
        "first batch only",
        "header damaged",
        "of other offsets",
        "records damaged",
    ],
)
def test_swap_file_when_damaged_then_no_sound_segment_is_replaced(clean: Sound, tmp_path: Path, how: str) -> None:
    content = clean.files[clean.segments[0]]
    swap = {
        "empty": b"",
        "first batch only": content[: len(content) // 2],
        "header damaged": flipped(content, 20),
        "records damaged": flipped(content, len(content) - 1),
        "of other offsets": clean.files[clean.segments[1]],
    }[how]
    files = clean.files | {f"{clean.segments[0]}.swap-{4:020d}": swap}
    assert Trial(clean, tmp_path).run(files, how) == "corrupted"


def damaged_twice(sound: Sound, damage: Callable[[bytes], bytes]) -> Iterator[tuple[str, Files]]:
    for one, other in combinations(sorted(sound.files), 2):
        yield f"{one} and {other}", sound.files | {name: damage(sound.files[name]) for name in (one, other)}


def test_two_files_when_damaged_at_once_then_never_a_wrong_record(clean: Sound, tmp_path: Path) -> None:
    trial = Trial(clean, tmp_path)
    for case, files in damaged_twice(clean, lambda content: flipped(content, len(content) // 2)):
        names = {name for name in files if files[name] != clean.files[name]}
        if names == {"checkpoint", clean.segments[-1]}:
            continue  # nothing is left that vouches for the end: it is cut, and said
        outcome = trial.run(files, case)
        assert outcome == ("exact" if all(name.endswith(CACHES) for name in names) else "corrupted"), case
