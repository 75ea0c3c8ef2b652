"""Compiles the shim once per version of its source, and says how to run a process under it."""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

_SOURCE = Path(__file__).with_name("shim.c")
_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-pthread", "-U_FORTIFY_SOURCE")


class ShimUnavailable(Exception):
    """The shim cannot be built on this machine; the text says what to install or mend."""


def shim_path() -> Path:
    """The compiled shim, compiled now if this source never was. Safe to call from parallel processes."""
    digest = hashlib.sha256(_SOURCE.read_bytes() + " ".join(_FLAGS).encode()).hexdigest()[:16]
    library = _cache_folder() / f"power_loss_shim-{digest}.so"
    if not library.exists():
        _compile(library)
    return library


def shim_environment(
    root: Path,
    trace: Path,
    marks: Path | None = None,
    *,
    fail_sync: int | None = None,
    fail_later_syncs: bool = False,
    full_flag: Path | None = None,
    full_short_write: bool = False,
) -> dict[str, str]:
    """The variables to add to the environment of the process to trace.

    ``fail_sync`` is the number, from 1 and per process, of the sync call that gets EIO; with
    ``fail_later_syncs`` so does every later one. While the file ``full_flag`` exists, the disk is full; with
    ``full_short_write`` the first write that meets the full disk is cut in half instead of refused.
    """
    if fail_sync is not None and fail_sync < 1:
        raise ValueError(f"fail_sync ({fail_sync}) counts from 1")
    preload = [str(shim_path()), *filter(None, [os.environ.get("LD_PRELOAD")])]
    variables = {
        "LD_PRELOAD": ":".join(preload),
        "LOGRAFT_SHIM_ROOT": str(root.resolve()),
        "LOGRAFT_SHIM_TRACE": str(trace.absolute()),
    }
    if marks is not None:
        variables["LOGRAFT_SHIM_MARKS"] = str(marks.absolute())
    if fail_sync is not None:
        variables["LOGRAFT_SHIM_FAIL_SYNC"] = f"{fail_sync}+" if fail_later_syncs else str(fail_sync)
    if full_flag is not None:
        variables["LOGRAFT_SHIM_FULL_FLAG"] = str(full_flag.absolute())
        if full_short_write:
            variables["LOGRAFT_SHIM_FULL_SHORT"] = "1"
    return variables


def _cache_folder() -> Path:
    chosen = os.environ.get("XDG_CACHE_HOME")
    caches = [Path(chosen) if chosen else Path("~/.cache").expanduser(), Path(tempfile.gettempdir())]
    for cache in caches:
        folder = cache / "lograft"
        # ld.so splits LD_PRELOAD at spaces and colons, and knows no quoting.
        if re.search(r"[\s:]", str(folder)):
            continue
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    raise ShimUnavailable(f"no writable folder for the compiled shim, tried {', '.join(map(str, caches))}")


def _compile(library: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise ShimUnavailable(
            "the power-loss shim needs a C compiler (cc or gcc); install one, "
            "such as with 'apt-get install gcc libc6-dev' or 'dnf install gcc glibc-devel'"
        )
    with tempfile.TemporaryDirectory(dir=library.parent, prefix="build-") as work:
        built = Path(work) / library.name
        command = [compiler, *_FLAGS, "-o", str(built), str(_SOURCE)]
        # Only our own source and fixed flags reach the compiler.
        result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if result.returncode != 0:
            raise ShimUnavailable(f"compiling the power-loss shim failed:\n{result.stderr}")
        # Atomic, so a parallel caller sees no library or a whole one.
        built.replace(library)
