"""Keep glibc from mapping every large buffer afresh."""

import ctypes

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_THRESHOLD_BYTES = 32 << 20  # the most that glibc accepts


def keep_large_buffers() -> bool:
    """Serve buffers of about a megabyte from the heap instead of fresh mappings; True if that was possible.

    By default glibc maps every buffer above 128 kB and unmaps it when freed, so that each batch pays a page fault per
    4 kB. Servers and benchmarks call this once at start; a library must not decide it for its user.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # not glibc
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _THRESHOLD_BYTES) and mallopt(_M_TRIM_THRESHOLD, _THRESHOLD_BYTES * 4))
