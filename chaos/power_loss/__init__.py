"""Power loss, without pulling a plug.

Run a process under the shim, which records every durability-relevant call it really makes; then replay the
record up to any point and ask what the disk could hold had the power failed there::

    subprocess.run(command, env={**os.environ, **shim_environment(root, trace, marks)})
    model = DiskModel()
    for event in read_trace(trace):
        model.apply(event)
        image = model.image(random.Random(seed), mode="torn")
        write_image(image, fresh_folder)  # recover from it; whatever model.marks acknowledges must be there

The rules of the model and the limits of the record are in README.md.
"""

from lograft.chaos.power_loss.build import ShimUnavailable, shim_environment, shim_path
from lograft.chaos.power_loss.image import read_image, write_image
from lograft.chaos.power_loss.model import DiskModel, Image, ImageMode
from lograft.chaos.power_loss.namespace import UntracedFile
from lograft.chaos.power_loss.trace import (
    DirectoryMade,
    DirectoryRemoved,
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
    Wrote,
    read_trace,
)

__all__ = [
    "DirectoryMade",
    "DirectoryRemoved",
    "DiskModel",
    "Image",
    "ImageMode",
    "Linked",
    "Marked",
    "Opened",
    "Renamed",
    "Resized",
    "ShimUnavailable",
    "SyncBegan",
    "SyncEnded",
    "SyncFailed",
    "SyncScope",
    "TraceCorrupted",
    "TraceEvent",
    "Unlinked",
    "UntracedFile",
    "Wrote",
    "read_image",
    "read_trace",
    "shim_environment",
    "shim_path",
    "write_image",
]
