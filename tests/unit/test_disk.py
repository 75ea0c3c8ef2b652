"""The disk: all of every write, and a replaced file that is old or new whatever fails."""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from lograft.contract.disk import Disk, is_no_space

IOV_MAX = os.sysconf("SC_IOV_MAX")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    descriptor = Disk().open_file(tmp_path / "file", create=True)
    yield descriptor
    os.close(descriptor)


def content(file: int) -> bytes:
    return Disk().read(file, 1 << 24, 0)


class ShortWrites(Disk):
    """Takes at most ``most`` bytes at a time, as the kernel may."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.calls = 0

    def write_some(self, file: int, buffers: Sequence[bytes | memoryview], position: int, flags: int) -> int:
        self.calls += 1
        return os.pwrite(file, b"".join(buffers)[: self.most], position)


# --- write and read

BUFFERS = [
    [],
    [b""],
    [b"", b"", b""],
    [b"abc"],
    [b"abc", b"defg", b"h"],
    [b"", b"abc", b"", b"", b"defg", b""],
    [bytes([number % 251]) * (number % 7) for number in range(300)],
]


@pytest.mark.parametrize("buffers", BUFFERS)
@pytest.mark.parametrize("most", [1, 2, 3, 4, 7, 1000])
def test_write_with_short_writes_writes_everything(file: int, buffers: list[bytes], most: int) -> None:
    Disk().write(file, [b"-" * 10], 0)
    ShortWrites(most).write(file, buffers, 5)
    written = b"".join(buffers)
    assert content(file) == (b"-" * 5 + written).ljust(10, b"-")


@pytest.mark.parametrize("count", [IOV_MAX - 1, IOV_MAX, IOV_MAX + 1, 3 * IOV_MAX + 5])
def test_write_with_more_buffers_than_the_kernel_takes_writes_everything(file: int, count: int) -> None:
    buffers = [number.to_bytes(3, "little") for number in range(count)]
    Disk().write(file, buffers, 0)
    assert content(file) == b"".join(buffers)


def test_write_with_many_empty_buffers_in_front_writes_what_follows(file: int) -> None:
    Disk().write(file, [b""] * (2 * IOV_MAX + 3) + [b"end"], 0)
    assert content(file) == b"end"


def test_write_never_hands_over_more_buffers_than_the_kernel_takes(file: int) -> None:
    class Counting(Disk):
        most = 0

        def write_some(self, file: int, buffers: Sequence[bytes | memoryview], position: int, flags: int) -> int:
            self.most = max(self.most, len(buffers))
            return super().write_some(file, buffers, position, flags)

    disk = Counting()
    disk.write(file, [b"x"] * (2 * IOV_MAX), 0)
    assert disk.most == IOV_MAX


def test_write_leaves_the_list_of_buffers_as_it_was(file: int) -> None:
    buffers = [b"abc", b"def"]
    ShortWrites(2).write(file, buffers, 0)
    assert buffers == [b"abc", b"def"]


def test_write_to_a_file_that_takes_nothing_fails_instead_of_going_on_forever(file: int) -> None:
    disk = ShortWrites(0)
    with pytest.raises(OSError, match="took none") as caught:
        disk.write(file, [b"", b"abc"], 0)
    assert caught.value.errno == errno.EIO
    assert disk.calls == 1


def test_write_that_fails_half_way_lets_the_error_out(file: int) -> None:
    class Full(ShortWrites):
        def write_some(self, file: int, buffers: Sequence[bytes | memoryview], position: int, flags: int) -> int:
            if self.calls == 2:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().write_some(file, buffers, position, flags)

    with pytest.raises(OSError, match="No space") as caught:
        Full(3).write(file, [b"abcdefghij"], 0)
    assert is_no_space(caught.value)
    assert content(file) == b"abcdef"


def test_read_past_the_end_gives_what_there_is(file: int) -> None:
    disk = Disk()
    disk.write(file, [b"0123456789"], 0)
    assert disk.read(file, 4, 3) == b"3456"
    assert disk.read(file, 100, 8) == b"89"
    assert disk.read(file, 100, 10) == disk.read(file, 100, 99) == disk.read(file, 0, 0) == b""


def test_truncate_cuts_and_keeps_the_rest(file: int) -> None:
    disk = Disk()
    disk.write(file, [b"0123456789"], 0)
    disk.truncate(file, 4)
    disk.sync_file(file)
    assert content(file) == b"0123"


@pytest.mark.parametrize(
    ("number", "expected"),
    [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False), (errno.EFBIG, False), (errno.EROFS, False)],
)
def test_is_no_space_is_true_for_a_full_disk_or_quota_only(number: int, expected: bool) -> None:
    assert is_no_space(OSError(number, "")) is expected


# --- files and directories


def test_open_file_creates_only_what_is_not_there_and_opens_only_what_is(tmp_path: Path) -> None:
    disk, path = Disk(), tmp_path / "file"
    with pytest.raises(FileNotFoundError):
        disk.open_file(path)
    os.close(disk.open_file(path, create=True))
    with pytest.raises(FileExistsError):
        disk.open_file(path, create=True)
    descriptor = disk.open_for_reading(path)
    assert not os.get_inheritable(descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        disk.write(descriptor, [b"x"], 0)
    os.close(descriptor)


def test_make_directory_makes_it_and_refuses_to_make_it_twice(tmp_path: Path) -> None:
    Disk().make_directory(tmp_path / "made")
    assert (tmp_path / "made").is_dir()
    with pytest.raises(FileExistsError):
        Disk().make_directory(tmp_path / "made")


def test_remove_of_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for _ in range(2):
        Disk().remove(tmp_path / "file")
    assert not (tmp_path / "file").exists()


def test_sync_filesystem_works_on_a_directory_and_reports_errors(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    Disk().sync_filesystem(directory)
    os.close(directory)
    with pytest.raises(OSError, match="Bad file descriptor") as caught:
        Disk().sync_filesystem(-1)
    assert caught.value.errno == errno.EBADF


# --- replace_file


class Failing(Disk):
    """Notes each step, and fails just before or just after the one numbered ``fail_at``."""

    def __init__(self, fail_at: int | None = None, *, after: bool = False) -> None:
        self.steps: list[str] = []
        self.fail_at = fail_at
        self.after = after

    def step(self, name: str, action: Callable[[], Any]) -> Any:
        self.steps.append(name)
        failing = len(self.steps) - 1 == self.fail_at
        if failing and not self.after:
            raise OSError(errno.EIO, "injected")
        result = action()
        if failing:
            if name == "open_file":
                os.close(result)
            raise OSError(errno.EIO, "injected")
        return result

    def open_file(self, path: Path, *, create: bool = False) -> int:
        return self.step("open_file", lambda: Disk.open_file(self, path, create=create))

    def write_some(self, file: int, buffers: Sequence[bytes | memoryview], position: int, flags: int) -> int:
        # Three bytes at a time, so that a failure may leave half of the content.
        piece = b"".join(buffers)[:3]
        return self.step("write", lambda: os.pwrite(file, piece, position))

    def sync_file(self, file: int) -> None:
        self.step("sync_file", lambda: Disk.sync_file(self, file))

    def sync_directory(self, path: Path) -> None:
        self.step("sync_directory", lambda: Disk.sync_directory(self, path))

    def rename(self, source: Path, target: Path) -> None:
        self.step("rename", lambda: Disk.rename(self, source, target))

    def remove(self, path: Path) -> None:
        self.step("remove", lambda: Disk.remove(self, path))


STEPS = ["remove", "open_file", "write", "write", "sync_file", "rename", "sync_directory"]
OLD, NEW = b"old content, which is longer", b"new: 6"


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))  # noqa: PTH208


def test_replace_file_syncs_the_content_before_the_rename_and_the_directory_after(tmp_path: Path) -> None:
    disk = Failing()
    disk.replace_file(tmp_path / "file", NEW)
    assert disk.steps == STEPS
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == NEW


@pytest.mark.requirement("R9")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("fail_at", range(len(STEPS)), ids=lambda number: f"{number}-{STEPS[number]}")
@pytest.mark.parametrize("existing", [True, False], ids=["replacing", "creating"])
def test_replace_file_that_fails_at_any_step_leaves_old_or_new_content(
    tmp_path: Path, fail_at: int, after: bool, existing: bool
) -> None:
    path = tmp_path / "file"
    if existing:
        path.write_bytes(OLD)
    before = open_descriptors()
    disk = Failing(fail_at, after=after)
    with pytest.raises(OSError, match="injected"):
        disk.replace_file(path, NEW)
    # It neither tries again nor goes on.
    assert disk.steps == STEPS[: fail_at + 1]
    assert open_descriptors() == before
    renamed = fail_at > STEPS.index("rename") or (fail_at == STEPS.index("rename") and after)
    if renamed or existing:
        assert path.read_bytes() == (NEW if renamed else OLD)
    else:
        assert not path.exists()
    # What the failure left behind does not disturb the next one.
    Disk().replace_file(path, b"next")
    assert path.read_bytes() == b"next"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.requirement("R9")
def test_replace_file_with_leftovers_of_an_earlier_crash_ignores_them(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(OLD)
    (tmp_path / "file.tmp").write_bytes(b"half of something that was much longer than the new content")
    Disk().replace_file(path, NEW)
    assert path.read_bytes() == NEW
    assert list(tmp_path.iterdir()) == [path]


def test_replace_file_with_a_name_with_dots_keeps_its_neighbours(tmp_path: Path) -> None:
    for name in ("00.log", "00.index", "00"):
        Disk().replace_file(tmp_path / name, name.encode())
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == {
        "00.log": b"00.log",
        "00.index": b"00.index",
        "00": b"00",
    }


def test_replace_file_with_nothing_makes_an_empty_file(tmp_path: Path) -> None:
    Disk().replace_file(tmp_path / "file", b"")
    assert (tmp_path / "file").read_bytes() == b""
