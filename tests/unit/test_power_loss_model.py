"""Each rule of the power-loss model, on hand-made events."""

from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

from lograft.chaos.power_loss import (
    DirectoryMade,
    DirectoryRemoved,
    DiskModel,
    Image,
    Linked,
    Marked,
    Opened,
    Renamed,
    Resized,
    SyncBegan,
    SyncEnded,
    SyncFailed,
    SyncScope,
    TraceCorrupted,
    TraceEvent,
    Unlinked,
    UntracedFile,
    Wrote,
    read_image,
    read_trace,
    write_image,
)

ROOT = 1
LOG = 10
OTHER = 11
FOLDER = 20
FOLDER_B = 21
SEEDS = range(200)

OPEN_ROOT = Opened(ROOT, "", directory=True)


def synced(inode: int, *, sync_id: int = 900, scope: SyncScope = SyncScope.FILE) -> list[TraceEvent]:
    return [SyncBegan(sync_id, inode, scope), SyncEnded(sync_id)]


def failed(inode: int, *, scope: SyncScope = SyncScope.FILE) -> list[TraceEvent]:
    return [SyncBegan(901, inode, scope), SyncFailed(901, 5)]


FILESYSTEM_SYNCED = synced(0, scope=SyncScope.FILESYSTEM)

# A file whose name is durable, so that only its content is in question.
NAMED_LOG: list[TraceEvent] = [OPEN_ROOT, Opened(LOG, "log", created=True), *synced(ROOT)]


def replayed(events: Iterable[TraceEvent], initial: Image | None = None) -> DiskModel:
    model = DiskModel(initial)
    for event in events:
        model.apply(event)
    return model


def dropped(events: Iterable[TraceEvent], initial: Image | None = None) -> Image:
    return replayed(events, initial).image(Random(0), mode="dropped")


def torn(events: Iterable[TraceEvent], initial: Image | None = None) -> list[Image]:
    model = replayed(events, initial)
    return [model.image(Random(seed), mode="torn") for seed in SEEDS]


def contents(events: Iterable[TraceEvent], path: str = "log") -> set[bytes]:
    return {image.files[path] for image in torn(events)}


def names(events: Iterable[TraceEvent], initial: Image | None = None) -> set[frozenset[str]]:
    return {frozenset(image.files) | image.directories for image in torn(events, initial)}


def sets(*groups: str) -> set[frozenset[str]]:
    return {frozenset(group.split()) for group in groups}


# ---- data --------------------------------------------------------------------------------------------------


def test_write_when_not_synced_then_may_be_lost() -> None:
    events: list[TraceEvent] = [*NAMED_LOG, Wrote(LOG, 0, b"abc")]

    assert dropped(events).files == {"log": b""}
    assert {b"", b"abc"} <= contents(events)


@pytest.mark.parametrize("scope", [SyncScope.FILE, SyncScope.FILE_DATA, SyncScope.FILESYSTEM])
def test_write_when_synced_then_survives_every_image(scope: SyncScope) -> None:
    events: list[TraceEvent] = [*NAMED_LOG, Wrote(LOG, 0, b"abc"), *synced(LOG, scope=scope)]

    assert dropped(events).files == {"log": b"abc"}
    assert contents(events) == {b"abc"}


def test_write_when_the_sync_has_not_ended_then_may_be_lost() -> None:
    events: list[TraceEvent] = [*NAMED_LOG, Wrote(LOG, 0, b"abc"), SyncBegan(1, LOG)]

    assert dropped(events).files == {"log": b""}


def test_write_when_logged_after_the_begin_then_is_not_covered() -> None:
    events: list[TraceEvent] = [
        *NAMED_LOG,
        Wrote(LOG, 0, b"a"),
        SyncBegan(1, LOG),
        Wrote(LOG, 1, b"b"),
        SyncEnded(1),
    ]

    assert dropped(events).files == {"log": b"a"}
    assert contents(events) >= {b"a", b"ab"}


def test_syncs_when_they_overlap_then_each_covers_what_stood_before_its_own_begin() -> None:
    events: list[TraceEvent] = [
        *NAMED_LOG,
        *(
            Wrote(LOG, 0, b"a"),
            SyncBegan(1, LOG),
            Wrote(LOG, 1, b"b"),
            SyncBegan(2, LOG),
            Wrote(LOG, 2, b"c"),
        ),
    ]

    assert dropped([*events, SyncEnded(1)]).files == {"log": b"a"}
    assert dropped([*events, SyncEnded(2)]).files == {"log": b"ab"}
    assert dropped([*events, SyncEnded(2), SyncEnded(1)]).files == {"log": b"ab"}


def test_sync_when_of_another_file_then_covers_nothing() -> None:
    events: list[TraceEvent] = [
        *NAMED_LOG,
        Opened(OTHER, "other", created=True),
        Wrote(LOG, 0, b"abc"),
        *synced(OTHER),
    ]

    assert dropped(events).files == {"log": b""}


def test_later_write_when_the_earlier_one_is_lost_then_leaves_a_hole_of_zeros() -> None:
    events: list[TraceEvent] = [*NAMED_LOG, Wrote(LOG, 0, b"aa"), Wrote(LOG, 2, b"bb")]

    assert {b"", b"aa", b"\0\0bb", b"aabb"} <= contents(events)


def test_write_when_torn_then_breaks_only_at_sectors_of_the_file() -> None:
    data = bytes([1]) * 400 + bytes([2]) * 512 + bytes([3]) * 512
    seen = contents([*NAMED_LOG, Wrote(LOG, 112, data), Resized(LOG, 1536), *synced(LOG), Wrote(LOG, 112, data[::-1])])

    blocks = {(image[112:512], image[512:1024], image[1024:1536]) for image in seen}
    assert len(blocks) == 8
    for column in zip(*blocks, strict=True):
        assert len(set(column)) == 2


def test_appended_write_when_torn_then_its_size_may_survive_without_its_data() -> None:
    seen = contents([*NAMED_LOG, Wrote(LOG, 0, b"x" * 1024)])

    assert bytes(1024) in seen
    assert b"x" * 512 in seen
    assert bytes(512) + b"x" * 512 in seen


def test_overwrite_when_not_synced_then_shows_old_or_new() -> None:
    events: list[TraceEvent] = [*NAMED_LOG, Wrote(LOG, 0, b"old"), *synced(LOG), Wrote(LOG, 0, b"new")]

    assert contents(events) == {b"old", b"new"}


def test_truncate_when_not_synced_then_may_or_may_not_have_happened() -> None:
    events: list[TraceEvent] = [*NAMED_LOG, Wrote(LOG, 0, b"abcdef"), *synced(LOG), Resized(LOG, 2)]

    assert dropped(events).files == {"log": b"abcdef"}
    assert contents(events) == {b"abcdef", b"ab"}
    assert contents([*events, *synced(LOG)]) == {b"ab"}


def test_rewrite_after_truncate_when_the_truncate_is_lost_then_lies_over_the_old_bytes() -> None:
    events: list[TraceEvent] = [
        *NAMED_LOG,
        Wrote(LOG, 0, b"abcdef"),
        *synced(LOG),
        Resized(LOG, 2),
        Wrote(LOG, 2, b"X"),
    ]

    assert contents(events) == {b"abcdef", b"ab", b"abXdef", b"abX", b"ab\0"}


def test_extension_when_not_synced_then_may_be_lost() -> None:
    assert contents([*NAMED_LOG, Resized(LOG, 3)]) == {b"", bytes(3)}


# ---- failed syncs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", [SyncScope.FILE, SyncScope.FILE_DATA, SyncScope.FILESYSTEM])
def test_failed_sync_when_retried_with_success_then_the_data_is_still_lost(scope: SyncScope) -> None:
    events: list[TraceEvent] = [
        *NAMED_LOG,
        Wrote(LOG, 0, b"ab"),
        *failed(LOG, scope=scope),
        Wrote(LOG, 2, b"cd"),
        *synced(LOG),
    ]

    assert contents(events) == {b"\0\0cd"}


def test_failed_sync_when_the_data_is_written_again_then_it_becomes_durable() -> None:
    events: list[TraceEvent] = [
        *NAMED_LOG,
        Wrote(LOG, 0, b"ab"),
        *failed(LOG),
        Wrote(LOG, 0, b"ab"),
        *synced(LOG),
    ]

    assert contents(events) == {b"ab"}


def test_failed_sync_when_a_write_came_after_its_begin_then_that_write_can_still_be_synced() -> None:
    events: list[TraceEvent] = [
        *NAMED_LOG,
        Wrote(LOG, 0, b"a"),
        SyncBegan(1, LOG),
        Wrote(LOG, 1, b"b"),
        SyncFailed(1, 5),
        *synced(LOG),
    ]

    assert contents(events) == {b"\0b"}


def test_failed_sync_when_data_was_durable_before_then_it_stays() -> None:
    events: list[TraceEvent] = [
        *NAMED_LOG,
        Wrote(LOG, 0, b"a"),
        *synced(LOG),
        Wrote(LOG, 1, b"b"),
        *failed(LOG),
    ]

    assert contents(events) == {b"a"}


def test_failed_directory_sync_when_a_later_one_succeeds_then_the_entries_are_durable() -> None:
    events: list[TraceEvent] = [OPEN_ROOT, Opened(LOG, "log", created=True), *failed(ROOT)]

    assert names(events) == sets("", "log")
    assert names([*events, *synced(ROOT)]) == sets("log")


# ---- names -------------------------------------------------------------------------------------------------


def test_created_file_when_only_its_data_is_synced_then_the_name_may_be_lost() -> None:
    events: list[TraceEvent] = [
        OPEN_ROOT,
        Opened(LOG, "log", created=True),
        Wrote(LOG, 0, b"abc"),
        *synced(LOG),
    ]

    assert dropped(events) == Image()
    assert names(events) == sets("", "log")
    assert dropped([*events, *synced(ROOT)]).files == {"log": b"abc"}


def test_created_file_when_the_directory_sync_began_before_then_the_name_may_be_lost() -> None:
    events: list[TraceEvent] = [OPEN_ROOT, SyncBegan(1, ROOT), Opened(LOG, "log", created=True), SyncEnded(1)]

    assert names(events) == sets("", "log")


def test_entries_when_not_synced_then_a_prefix_in_order_survives() -> None:
    events: list[TraceEvent] = [
        OPEN_ROOT,
        *(Opened(inode, name, created=True) for inode, name in enumerate("abc", start=LOG)),
    ]

    assert names(events) == sets("", "a", "a b", "a b c")


def test_unlink_when_not_synced_then_the_file_may_come_back_with_its_content() -> None:
    events: list[TraceEvent] = [*NAMED_LOG, Wrote(LOG, 0, b"abc"), *synced(LOG), Unlinked("log")]

    assert dropped(events).files == {"log": b"abc"}
    assert names(events) == sets("", "log")
    assert names([*events, *synced(ROOT)]) == sets("")


def test_unlink_when_the_inode_number_is_reused_then_the_old_file_keeps_its_own_content() -> None:
    events: list[TraceEvent] = [
        *NAMED_LOG,
        *(Wrote(LOG, 0, b"old"), *synced(LOG), Unlinked("log")),
        *(Opened(LOG, "new", created=True), Wrote(LOG, 0, b"new"), *synced(LOG)),
    ]

    assert dropped(events).files == {"log": b"old"}
    assert dropped([*events, *synced(ROOT)]).files == {"new": b"new"}


def test_rename_over_a_file_when_not_synced_then_shows_wholly_old_or_wholly_new() -> None:
    events: list[TraceEvent] = [
        *NAMED_LOG,
        *(Wrote(LOG, 0, b"old"), *synced(LOG)),
        *(Opened(OTHER, "temporary", created=True), Wrote(OTHER, 0, b"new"), *synced(OTHER)),
        Renamed("temporary", "log"),
    ]

    seen = {tuple(sorted(image.files.items())) for image in torn(events)}
    assert seen == {
        (("log", b"old"),),
        (("log", b"old"), ("temporary", b"new")),
        (("log", b"new"),),
    }
    assert dropped([*events, *synced(ROOT)]).files == {"log": b"new"}


def test_rename_when_the_data_was_not_synced_before_then_the_new_name_may_be_empty() -> None:
    events: list[TraceEvent] = [
        OPEN_ROOT,
        Opened(LOG, "temporary", created=True),
        Wrote(LOG, 0, b"new"),
        Renamed("temporary", "log"),
    ]

    assert dropped([*events, *synced(ROOT)]).files == {"log": b""}


def test_rename_with_exchange_when_not_synced_then_both_names_swap_or_neither() -> None:
    initial = Image({"a": b"1", "b": b"2"})
    seen = {tuple(sorted(i.files.items())) for i in torn([Renamed("a", "b", exchange=True)], initial)}

    assert seen == {(("a", b"1"), ("b", b"2")), (("a", b"2"), ("b", b"1"))}


def test_link_when_not_synced_then_the_second_name_may_be_lost_and_never_differs() -> None:
    events: list[TraceEvent] = [*NAMED_LOG, Linked(LOG, "log", "twin"), Wrote(LOG, 0, b"abc")]

    assert names(events) == sets("log", "log twin")
    assert all(image.files.get("twin", image.files["log"]) == image.files["log"] for image in torn(events))


def test_nameless_file_when_linked_and_synced_then_has_its_content() -> None:
    events: list[TraceEvent] = [
        OPEN_ROOT,
        Opened(LOG, None, created=True),
        Wrote(LOG, 0, b"abc"),
        Linked(LOG, "#10 (deleted)", "log"),
    ]

    assert dropped([*events, *FILESYSTEM_SYNCED]).files == {"log": b"abc"}


def test_filesystem_sync_when_it_ends_then_names_and_data_are_durable() -> None:
    events: list[TraceEvent] = [
        *(DirectoryMade(FOLDER, "d"), Opened(LOG, "d/log", created=True), Wrote(LOG, 0, b"abc")),
        *(
            SyncBegan(1, 0, SyncScope.FILESYSTEM),
            Wrote(LOG, 3, b"d"),
            Opened(OTHER, "late", created=True),
            SyncEnded(1),
        ),
    ]

    assert dropped(events) == Image({"d/log": b"abc"}, frozenset({"d"}))


# ---- directories -------------------------------------------------------------------------------------------


def test_file_in_a_new_directory_when_only_that_directory_is_synced_then_both_may_be_lost() -> None:
    events: list[TraceEvent] = [
        OPEN_ROOT,
        DirectoryMade(FOLDER, "d"),
        Opened(LOG, "d/log", created=True),
        *synced(FOLDER),
    ]

    assert names(events) == sets("", "d d/log")
    assert names([*events, *synced(ROOT)]) == sets("d d/log")


def test_new_directory_when_only_the_parent_is_synced_then_is_there_and_may_be_empty() -> None:
    events: list[TraceEvent] = [
        OPEN_ROOT,
        DirectoryMade(FOLDER, "d"),
        Opened(LOG, "d/log", created=True),
        *synced(ROOT),
    ]

    assert names(events) == sets("d", "d d/log")


TWO_FOLDERS = Image({"a/log": b"abc"}, frozenset({"a", "b"}))
OPEN_FOLDERS: list[TraceEvent] = [
    OPEN_ROOT,
    Opened(FOLDER, "a", directory=True),
    Opened(FOLDER_B, "b", directory=True),
]


def test_rename_between_directories_when_not_synced_then_the_file_has_exactly_one_name() -> None:
    events: list[TraceEvent] = [*OPEN_FOLDERS, Renamed("a/log", "b/log")]

    assert names(events, TWO_FOLDERS) == sets("a b a/log", "a b b/log")


@pytest.mark.parametrize("folder", [FOLDER, FOLDER_B])
def test_rename_between_directories_when_either_is_synced_then_is_durable_in_both(folder: int) -> None:
    events: list[TraceEvent] = [*OPEN_FOLDERS, Renamed("a/log", "b/log"), *synced(folder)]

    assert names(events, TWO_FOLDERS) == sets("a b b/log")


def test_rename_between_directories_when_operations_stand_before_it_then_they_happened_too() -> None:
    events: list[TraceEvent] = [
        *OPEN_FOLDERS,
        Opened(OTHER, "b/first", created=True),
        Renamed("a/log", "b/log"),
    ]

    assert names(events, TWO_FOLDERS) == sets("a b a/log", "a b a/log b/first", "a b b/first b/log")


def test_directory_removal_when_a_file_was_moved_out_before_then_the_file_is_never_lost() -> None:
    events: list[TraceEvent] = [*OPEN_FOLDERS, Renamed("a/log", "b/log"), DirectoryRemoved("a")]

    assert names(events, TWO_FOLDERS) == sets("a b a/log", "a b b/log", "b b/log")
    assert names([*events, *synced(ROOT)], TWO_FOLDERS) == sets("b b/log")


def test_directory_rename_when_synced_then_takes_its_files_along() -> None:
    events: list[TraceEvent] = [
        *OPEN_FOLDERS,
        Renamed("a", "c"),
        Opened(OTHER, "c/new", created=True),
        *synced(ROOT),
        *synced(FOLDER),
    ]

    assert names(events, TWO_FOLDERS) == sets("b c c/log c/new")


# ---- the rest of the interface -----------------------------------------------------------------------------


def test_marks_when_replayed_then_are_listed_in_order_and_are_not_files() -> None:
    model = replayed([Marked(b"1"), *NAMED_LOG, Marked(b"2")])

    assert model.marks == [b"1", b"2"]
    assert set(model.image(Random(0)).files) == {"log"}


def test_image_when_asked_with_the_same_seed_then_is_the_same() -> None:
    events: list[TraceEvent] = [
        *NAMED_LOG,
        *(Wrote(LOG, 700 * i, bytes([i]) * 900) for i in range(1, 20)),
        Unlinked("log"),
    ]

    assert torn(events) == torn(events)


def test_image_when_the_model_advances_later_then_does_not_change() -> None:
    model = replayed([*NAMED_LOG, Wrote(LOG, 0, b"abc"), *synced(LOG)])
    image = model.image(Random(0))
    for event in [Wrote(LOG, 0, b"xyz"), *synced(LOG), Unlinked("log"), *synced(ROOT)]:
        model.apply(event)

    assert image.files == {"log": b"abc"}


def test_file_when_older_than_the_trace_then_the_initial_image_is_asked_for() -> None:
    with pytest.raises(UntracedFile, match="log is older than the trace"):
        replayed([Opened(LOG, "log")])
    with pytest.raises(UntracedFile, match="inode 10"):
        replayed([Wrote(LOG, 0, b"abc")])


def test_initial_image_when_given_then_is_durable_and_can_be_changed() -> None:
    events: list[TraceEvent] = [Opened(LOG, "a/log"), Wrote(LOG, 0, b"X")]

    assert dropped(events, TWO_FOLDERS) == TWO_FOLDERS
    assert dropped([*events, *synced(LOG)], TWO_FOLDERS).files == {"a/log": b"Xbc"}


def test_written_image_when_read_back_then_is_equal(tmp_path: Path) -> None:
    write_image(TWO_FOLDERS, tmp_path / "disk")

    assert read_image(tmp_path / "disk") == TWO_FOLDERS


def test_write_image_when_the_folder_has_files_then_refuses(tmp_path: Path) -> None:
    (tmp_path / "left-over").touch()

    with pytest.raises(FileExistsError):
        write_image(TWO_FOLDERS, tmp_path)


def test_trace_when_damaged_before_its_end_then_says_where(tmp_path: Path) -> None:
    (tmp_path / "trace").write_bytes(bytes(64))

    with pytest.raises(TraceCorrupted, match="no event at byte 0"):
        read_trace(tmp_path / "trace")
