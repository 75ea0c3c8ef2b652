"""The shim under real processes: what it records is what they did, and its faults are the ones asked for."""

import errno
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from lograft.chaos.power_loss import (
    DirectoryMade,
    DiskModel,
    Image,
    Marked,
    Opened,
    Renamed,
    ShimUnavailable,
    SyncBegan,
    SyncEnded,
    SyncFailed,
    SyncScope,
    TraceEvent,
    Wrote,
    read_image,
    read_trace,
    shim_environment,
    shim_path,
    write_image,
)

PRELUDE = """
import ctypes, errno, os, signal, sys, threading
os.chdir(sys.argv[1])
marks = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
flag = sys.argv[3]
def mark(text): os.write(marks, text.encode())
def create(name): return os.open(name, os.O_CREAT | os.O_RDWR)
def sync_folder(name="."):
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(folder)
    os.close(folder)
def error_of(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "none"
"""


@dataclass(frozen=True)
class Shimmed:
    """A folder to trace, and how to run a child in it."""

    base: Path

    @property
    def root(self) -> Path:
        return self.base / "root"

    @property
    def full_flag(self) -> Path:
        return self.base / "full"

    def run(
        self,
        program: str,
        *,
        exit_code: int = 0,
        fail_sync: int | None = None,
        fail_later_syncs: bool = False,
        full_short_write: bool = False,
    ) -> list[TraceEvent]:
        variables = shim_environment(
            self.root,
            self.base / "trace",
            self.base / "marks",
            fail_sync=fail_sync,
            fail_later_syncs=fail_later_syncs,
            full_flag=self.full_flag,
            full_short_write=full_short_write,
        )
        arguments = [str(self.root), str(self.base / "marks"), str(self.full_flag)]
        result = subprocess.run(
            [sys.executable, "-c", PRELUDE + textwrap.dedent(program), *arguments],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert result.returncode == exit_code, result.stderr
        return read_trace(self.base / "trace")


@pytest.fixture
def shimmed(tmp_path: Path) -> Shimmed:
    (tmp_path / "root").mkdir()
    return Shimmed(tmp_path)


def replayed(events: list[TraceEvent]) -> DiskModel:
    model = DiskModel()
    for event in events:
        model.apply(event)
    return model


def dropped(events: list[TraceEvent]) -> Image:
    return replayed(events).image(Random(0), mode="dropped")


def everything(events: list[TraceEvent]) -> Image:
    """The disk after a clean shutdown: must be the folder as it really is."""
    return dropped([*events, SyncBegan(1, 0, SyncScope.FILESYSTEM), SyncEnded(1)])


def marked(events: list[TraceEvent]) -> list[str]:
    return [event.payload.decode() for event in events if isinstance(event, Marked)]


# ---- what is recorded --------------------------------------------------------------------------------------


def test_write_when_not_synced_then_is_dropped(shimmed: Shimmed) -> None:
    events = shimmed.run("""
        fd = create("log")
        sync_folder()
        os.write(fd, b"abc")
    """)

    assert dropped(events).files == {"log": b""}
    assert everything(events).files == {"log": b"abc"}


@pytest.mark.parametrize("sync", ["os.fsync(fd)", "os.fdatasync(fd)", "os.fdatasync(os.dup(fd))"])
def test_write_when_synced_then_is_kept(shimmed: Shimmed, sync: str) -> None:
    events = shimmed.run(f"""
        fd = create("log")
        sync_folder()
        os.write(fd, b"abc")
        {sync}
        os.write(fd, b"later")
    """)

    assert dropped(events).files == {"log": b"abc"}


def test_created_file_when_its_directory_is_not_synced_then_is_gone(shimmed: Shimmed) -> None:
    events = shimmed.run("""
        os.mkdir("d")
        sync_folder()
        fd = create("d/log")
        os.write(fd, b"abc")
        os.fsync(fd)
    """)

    assert dropped(events) == Image({}, frozenset({"d"}))


def test_created_file_when_its_directory_is_synced_then_is_there(shimmed: Shimmed) -> None:
    events = shimmed.run("""
        os.makedirs("d/e")
        fd = create("d/e/log")
        os.write(fd, b"abc")
        os.fsync(fd)
        for folder in ("d/e", "d", "."):
            sync_folder(folder)
    """)

    assert dropped(events) == Image({"d/e/log": b"abc"}, frozenset({"d", "d/e"}))


def test_rename_when_the_directory_is_not_synced_then_either_content_may_be_there(shimmed: Shimmed) -> None:
    program = """
        for name, text in (("current", b"old"), ("next", b"new")):
            fd = create(name)
            os.write(fd, text)
            os.fsync(fd)
        sync_folder()
        os.replace("next", "current")
    """
    model = replayed(shimmed.run(program))

    seen = {model.image(Random(seed)).files["current"] for seed in range(50)}
    assert seen == {b"old", b"new"}


def test_rename_when_the_directory_is_synced_then_is_done(shimmed: Shimmed) -> None:
    events = shimmed.run("""
        fd = create("next")
        os.write(fd, b"new")
        os.fsync(fd)
        os.rename("next", "current")
        sync_folder()
    """)

    assert dropped(events).files == {"current": b"new"}


def test_syncfs_when_called_through_ctypes_then_covers_all_files_and_names(shimmed: Shimmed) -> None:
    events = shimmed.run("""
        os.mkdir("d")
        for name in ("a", "d/b"):
            os.write(create(name), name.encode())
        assert ctypes.CDLL(None).syncfs(os.open(".", os.O_RDONLY)) == 0
        create("late")
    """)

    assert dropped(events) == Image({"a": b"a", "d/b": b"d/b"}, frozenset({"d"}))


def test_sync_when_called_then_covers_all_files_and_names(shimmed: Shimmed) -> None:
    events = shimmed.run("""
        os.write(create("a"), b"abc")
        os.sync()
    """)

    assert dropped(events).files == {"a": b"abc"}


def test_writes_when_made_in_every_way_then_the_trace_has_their_positions(shimmed: Shimmed) -> None:
    events = shimmed.run("""
        fd = create("log")
        os.write(fd, b"0123")
        os.writev(fd, [b"45", b"", b"67"])
        os.pwrite(fd, b"A", 1)
        os.pwritev(fd, [b"B", b"C"], 2)
        os.pwritev(fd, [b"D"], 9, os.RWF_HIPRI)
        os.lseek(fd, 20, os.SEEK_SET)
        os.write(fd, b"E")
        end = os.open("log", os.O_WRONLY | os.O_APPEND)
        os.write(end, b"F")
        os.pwrite(end, b"G", 0)
        with open("log", "ab") as file:
            file.write(b"H")
        os.pwritev(fd, [b"I"], 0, os.RWF_APPEND)
        os.write(fd, b"")
    """)

    writes = [(event.position, event.data) for event in events if isinstance(event, Wrote)]
    assert writes == [
        *((0, b"0123"), (4, b"4567"), (1, b"A"), (2, b"BC"), (9, b"D"), (20, b"E")),
        *((21, b"F"), (22, b"G"), (23, b"H"), (24, b"I")),
    ]
    assert everything(events) == read_image(shimmed.root)


def test_sizes_when_changed_in_every_way_then_the_model_agrees_with_the_folder(shimmed: Shimmed) -> None:
    events = shimmed.run("""
        for name in ("cut", "cut-by-path", "grown", "emptied", "allocated"):
            with open(name, "wb") as file:
                file.write(b"x" * 100)
        os.ftruncate(create("cut"), 10)
        os.truncate("cut-by-path", 20)
        os.ftruncate(create("grown"), 300)
        open("emptied", "wb").close()
        os.posix_fallocate(create("allocated"), 50, 100)
        os.posix_fallocate(create("cut"), 0, 5)
    """)

    sizes = {path: len(content) for path, content in everything(events).files.items()}
    assert sizes == {"cut": 10, "cut-by-path": 20, "grown": 300, "emptied": 0, "allocated": 150}
    assert everything(events) == read_image(shimmed.root)


def test_ftruncate_when_not_synced_then_is_dropped(shimmed: Shimmed) -> None:
    events = shimmed.run("""
        fd = create("log")
        sync_folder()
        os.write(fd, b"abcdef")
        os.fsync(fd)
        os.ftruncate(fd, 2)
    """)

    assert dropped(events).files == {"log": b"abcdef"}


def test_names_when_changed_in_every_way_then_the_model_agrees_with_the_folder(shimmed: Shimmed) -> None:
    events = shimmed.run("""
        import shutil
        os.mkdir("d")
        there = os.open("d", os.O_RDONLY)
        os.write(os.open("by-folder", os.O_CREAT | os.O_WRONLY, dir_fd=there), b"1")
        os.mkdir("sub", dir_fd=there)
        os.rename("by-folder", "moved", src_dir_fd=there, dst_dir_fd=there)
        os.link("d/moved", "twin")
        os.rename("twin", "d/moved")
        os.write(create("sub/../gone" if os.path.exists("sub") else "gone"), b"2")
        os.unlink("gone")
        os.rmdir("sub", dir_fd=there)
        shutil.copytree("d", "copy")
        shutil.copytree("copy", "scrap")
        shutil.rmtree("scrap")
        os.rename("d", "copy/d")
        os.symlink("copy", "shortcut")
        os.write(create("shortcut/./d/../through-link"), b"3")
        os.remove("shortcut")
        nameless = os.open(".", os.O_TMPFILE | os.O_RDWR)
        os.write(nameless, b"4")
        os.link(f"/proc/self/fd/{nameless}", "named", src_dir_fd=there)
    """)

    assert everything(events) == read_image(shimmed.root)
    assert set(everything(events).files) >= {"twin", "copy/d/moved", "copy/through-link", "named"}


def test_files_outside_the_root_when_written_then_leave_no_event(shimmed: Shimmed) -> None:
    (shimmed.base / "root-too").mkdir()
    events = shimmed.run("""
        fd = create("../root-too/log")
        os.write(fd, b"abc")
        os.fsync(fd)
        os.rename("../root-too/log", "../root-too/log2")
        print("to a pipe", flush=True)
    """)

    assert events == []


def test_rename_and_link_when_they_cross_the_root_then_are_refused(shimmed: Shimmed) -> None:
    events = shimmed.run("""
        os.close(create("inside"))
        os.close(create("../outside"))
        mark(error_of(os.rename, "../outside", "new"))
        mark(error_of(os.rename, "inside", "../new"))
        mark(error_of(os.link, "../outside", "new"))
    """)

    assert marked(events) == ["EXDEV"] * 3


def test_shared_writable_mapping_when_asked_for_then_is_refused_and_reading_is_not(shimmed: Shimmed) -> None:
    events = shimmed.run("""
        import mmap
        fd = create("log")
        os.write(fd, b"abc")
        mark(error_of(mmap.mmap, fd, 3))
        mark(mmap.mmap(fd, 3, prot=mmap.PROT_READ)[:].decode())
    """)

    assert marked(events) == ["ENODEV", "abc"]


def test_mark_when_written_after_a_sync_then_stands_after_its_end(shimmed: Shimmed) -> None:
    events = shimmed.run("""
        fd = create("log")
        mark("before")
        os.fdatasync(fd)
        mark("after")
    """)

    kinds = [type(event) for event in events]
    assert kinds == [Opened, Marked, SyncBegan, SyncEnded, Marked]
    assert replayed(events).marks == [b"before", b"after"]


def test_acknowledged_records_when_the_power_fails_anywhere_then_are_on_the_disk(shimmed: Shimmed) -> None:
    events = shimmed.run("""
        fd = create("log")
        sync_folder()
        for number in range(30):
            os.write(fd, bytes([number + 1]) * 700)
            os.fdatasync(fd)
            mark(str(number + 1))
    """)

    model = DiskModel()
    for seed, event in enumerate(events):
        model.apply(event)
        acknowledged = b"".join(bytes([int(mark)]) * 700 for mark in model.marks)
        for mode in ("torn", "dropped"):
            assert model.image(Random(seed), mode=mode).files.get("log", b"").startswith(acknowledged)
    assert len(model.marks) == 30


# ---- threads and processes ---------------------------------------------------------------------------------


def test_threads_when_they_write_and_sync_in_parallel_then_every_sync_has_its_own_end(
    shimmed: Shimmed,
) -> None:
    events = shimmed.run("""
        barrier = threading.Barrier(4)
        def work(number):
            fd = create(f"log{number}")
            barrier.wait()
            for turn in range(25):
                os.write(fd, bytes([turn]) * 100)
                os.fdatasync(fd)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        sync_folder()
    """)

    began = [event.sync_id for event in events if isinstance(event, SyncBegan)]
    ended = [event.sync_id for event in events if isinstance(event, SyncEnded)]
    assert len(began) == len(set(began)) == 101
    assert sorted(began) == sorted(ended)
    assert dropped(events) == read_image(shimmed.root)


def test_threads_when_they_share_a_file_then_the_order_of_the_trace_is_the_order_on_disk(
    shimmed: Shimmed,
) -> None:
    events = shimmed.run("""
        fd = create("log")
        def work(number):
            for turn in range(200):
                os.pwrite(fd, bytes([number]) * 8, 8 * (turn % 5))
                os.write(fd, b"x")
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
    """)

    assert everything(events) == read_image(shimmed.root)


def test_forked_and_started_children_when_they_write_too_then_share_one_order(shimmed: Shimmed) -> None:
    events = shimmed.run("""
        import subprocess
        fd = os.open("log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        work = "import os; [os.write(0, bytes([7, n])) for n in range(100)]"
        started = subprocess.Popen([sys.executable, "-c", work], stdin=fd)
        forked = os.fork()
        for number in range(100):
            os.write(fd, bytes([forked == 0, number]))
        if forked == 0:
            os._exit(0)
        assert os.waitpid(forked, 0)[1] == 0
        assert started.wait() == 0
    """)

    assert everything(events) == read_image(shimmed.root)
    assert len(everything(events).files["log"]) == 600


def test_descriptors_when_the_program_closes_all_of_them_then_the_trace_goes_on(shimmed: Shimmed) -> None:
    events = shimmed.run("""
        os.write(create("a"), b"1")
        os.closerange(3, 4096)
        for number in range(600):
            fd = create("b")
        os.write(fd, b"2")
    """)

    assert everything(events) == read_image(shimmed.root)


def test_trace_when_the_process_is_killed_then_is_readable(shimmed: Shimmed) -> None:
    program = """
        fd = create("log")
        sync_folder()
        os.write(fd, b"abc")
        os.fdatasync(fd)
        mark("acknowledged")
        def work():
            while True:
                os.write(fd, bytes(100_000))
        threading.Thread(target=work, daemon=True).start()
        while os.fstat(fd).st_size < 1_000_000:
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    """
    events = shimmed.run(program, exit_code=-signal.SIGKILL)

    assert marked(events) == ["acknowledged"]
    assert dropped(events).files == {"log": b"abc"}
    assert len(everything(events).files["log"]) >= 900_000


def test_trace_when_its_last_event_is_torn_then_the_rest_is_read(shimmed: Shimmed) -> None:
    events = shimmed.run("""
        fd = create("log")
        os.write(fd, b"abc")
    """)
    trace = shimmed.base / "trace"
    whole = trace.read_bytes()

    for size in (len(whole) - 1, len(whole) - 3, len(whole) - 30):
        trace.write_bytes(whole[:size])
        assert read_trace(trace) == events[:-1]


# ---- faults ------------------------------------------------------------------------------------------------


def test_sync_when_told_to_fail_then_gets_eio_once_and_the_retry_does_not_save_the_data(
    shimmed: Shimmed,
) -> None:
    program = """
        fd = create("log")
        sync_folder()
        os.write(fd, b"ab")
        mark(error_of(os.fdatasync, fd))
        mark(error_of(os.fdatasync, fd))
        os.write(fd, b"cd")
        os.fsync(fd)
    """
    events = shimmed.run(program, fail_sync=2)

    assert marked(events) == ["EIO", "none"]
    assert [event.errno for event in events if isinstance(event, SyncFailed)] == [errno.EIO]
    assert dropped(events).files == {"log": b"\0\0cd"}


def test_syncs_when_told_to_fail_from_one_on_then_all_later_ones_get_eio(shimmed: Shimmed) -> None:
    program = """
        fd = create("log")
        syncfs = ctypes.CDLL(None, use_errno=True).syncfs
        for call in (os.fsync, os.fdatasync, os.fsync):
            mark(error_of(call, fd))
        mark(str(syncfs(fd)) + errno.errorcode[ctypes.get_errno()])
    """
    events = shimmed.run(program, fail_sync=2, fail_later_syncs=True)

    assert marked(events) == ["none", "EIO", "EIO", "-1EIO"]


def test_full_disk_when_the_flag_exists_then_growing_and_creating_fail_and_the_rest_works(
    shimmed: Shimmed,
) -> None:
    events = shimmed.run("""
        fd = create("log")
        os.write(fd, b"abcd")
        os.close(create(flag))
        mark(error_of(os.write, fd, b"efgh"))
        mark(error_of(os.pwrite, fd, b"efgh", 2))
        mark(error_of(os.posix_fallocate, fd, 0, 100))
        mark(error_of(create, "new"))
        mark(error_of(os.mkdir, "folder"))
        mark(error_of(os.pwrite, fd, b"X", 3))
        mark(error_of(os.fsync, fd))
        mark(error_of(os.mkdir, "."))
        os.unlink(flag)
        mark(error_of(os.write, fd, b"efgh"))
    """)

    assert marked(events) == [*["ENOSPC"] * 5, "none", "none", "EEXIST", "none"]
    assert everything(events).files == {"log": b"abcXefgh"}
    assert everything(events) == read_image(shimmed.root)


def test_full_disk_when_short_writes_are_on_then_the_first_write_is_cut_in_half(shimmed: Shimmed) -> None:
    program = """
        fd = create("log")
        os.close(create(flag))
        mark(str(os.writev(fd, [b"abc", b"", b"defg", b"h"])))
        mark(error_of(os.write, fd, b"efgh"))
        os.unlink(flag)
        os.write(fd, b"-")
        os.close(create(flag))
        mark(str(os.write(fd, b"1234567")))
    """
    events = shimmed.run(program, full_short_write=True)

    assert marked(events) == ["4", "ENOSPC", "3"]
    assert everything(events).files == {"log": b"abcd-123"}
    assert everything(events) == read_image(shimmed.root)


# ---- building and restarting -------------------------------------------------------------------------------


def test_second_run_when_started_from_an_image_then_is_modelled_on_top_of_it(shimmed: Shimmed) -> None:
    initial = Image({"d/log": b"abc"}, frozenset({"d"}))
    write_image(initial, shimmed.root)
    events = shimmed.run("""
        fd = os.open("d/log", os.O_WRONLY | os.O_APPEND)
        os.write(fd, b"d")
        os.fsync(fd)
        os.rename("d/log", "log")
    """)

    model = DiskModel(initial)
    for event in events:
        model.apply(event)
    assert model.image(Random(0), mode="dropped").files == {"d/log": b"abcd"}


def test_shim_when_built_twice_then_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = shim_path()
    monkeypatch.setenv("PATH", "")

    assert first.parent == tmp_path / "lograft"
    assert shim_path() == first
    assert list(first.parent.iterdir()) == [first]


def test_shim_when_there_is_no_compiler_then_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")

    with pytest.raises(ShimUnavailable, match="apt-get install gcc"):
        shim_path()


def test_cache_folder_when_its_path_would_break_ld_preload_then_another_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    assert shim_path().parent == tmp_path / "lograft"


def test_directory_when_renamed_then_its_files_are_recorded_below_the_new_name(shimmed: Shimmed) -> None:
    events = shimmed.run("""
        os.mkdir("a")
        fd = create("a/log")
        os.rename("a", "b")
        os.write(fd, b"abc")
        os.write(create("b/more"), b"def")
    """)

    assert [event for event in events if isinstance(event, DirectoryMade | Renamed)][1] == Renamed("a", "b")
    assert everything(events) == read_image(shimmed.root)
