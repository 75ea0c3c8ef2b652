"""Settings of the whole process that our servers and benchmarks make at start; a library must not, for its user."""

import ctypes
import sys

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_THRESHOLD_BYTES = 32 << 20  # the most that glibc accepts
_SWITCH_INTERVAL_S = 0.0001


def tune_process() -> None:
    """Keep large buffers, and let threads that come back from the disk have the interpreter soon.

    The disk writer needs the interpreter lock after each system call; by default it may wait 5 ms for it while the
    event loop is busy, several times as long as a sync takes.
    """
    keep_large_buffers()
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
