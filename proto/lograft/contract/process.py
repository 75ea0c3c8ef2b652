"""Settings of the whole process that our servers and benchmarks make at start; a library must not, for its user."""

import ctypes
import os
import sys

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_THRESHOLD_BYTES = 32 << 20  # the most that glibc accepts
_SWITCH_INTERVAL_S = 0.0001
_ARENA_BYTES = 1 << 20
_KEPT_ARENAS = 8
_PIN_BYTES = 512  # the largest object that lives in an arena
_pins: list[bytes] = []


# Older than the default, and hands a message through fewer threads: docs/decisions/0009.
_GRPC_EXPERIMENTS = "-event_engine_client,-event_engine_listener"


def tune_grpc() -> None:
    """Have gRPC use its older poller: 12 to 15 % less CPU per message. Must come before grpc is imported."""
    os.environ.setdefault("GRPC_EXPERIMENTS", _GRPC_EXPERIMENTS)


def tune_process() -> None:
    """Keep memory that is needed again at once, and let threads that come back from the disk go on soon.

    The disk writer needs the interpreter lock after each system call; by default it may wait 5 ms for it while the
    event loop is busy, several times as long as a sync takes.
    """
    keep_large_buffers()
    keep_small_object_arenas()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)


def keep_large_buffers() -> bool:
    """Serve buffers of about a megabyte from the heap instead of fresh mappings; True if that was possible.

    By default glibc maps every buffer above 128 kB and unmaps it when freed, so that each batch pays a page fault per
    4 kB.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # not glibc
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _THRESHOLD_BYTES) and mallopt(_M_TRIM_THRESHOLD, _THRESHOLD_BYTES * 4))


def keep_small_object_arenas() -> None:
    """Have CPython keep some arenas for small objects, for the same reason.

    CPython maps an arena of 1 MiB when small objects need it and unmaps it when the last of them is gone. The records
    of a batch of 1 MB fill one and leave it together, so that each batch pays for a new one: decoding took 86 ns per
    record instead of 38. One living object pins an arena.
    """
    if not _pins:
        objects = [bytes(_PIN_BYTES - sys.getsizeof(b"")) for _ in range(_KEPT_ARENAS * _ARENA_BYTES // _PIN_BYTES)]
        _pins.extend(objects[:: _ARENA_BYTES // _PIN_BYTES // 2])  # two in each, to be sure of one
