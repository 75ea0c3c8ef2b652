"""Images to and from real folders; the only part of the model's side that touches a disk."""

import os
from pathlib import Path

from lograft.chaos.power_loss.model import Image


def write_image(image: Image, folder: Path) -> None:
    """Make ``folder`` look like the disk after the power loss.

    It must be new or empty: a file left from another image would be taken for one that survived.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty")
    for path in sorted(image.directories):
        (folder / path).mkdir(parents=True, exist_ok=True)
    for path, content in image.files.items():
        (folder / path).write_bytes(content)


def read_image(folder: Path) -> Image:
    """The present content of a folder, as the durable start of a further traced run."""
    files: dict[str, bytes] = {}
    directories: set[str] = set()
    for parent, folder_names, file_names in os.walk(folder):
        base = Path(parent)
        directories.update((base / name).relative_to(folder).as_posix() for name in folder_names)
        for name in file_names:
            path = base / name
            if path.is_file() and not path.is_symlink():
                files[path.relative_to(folder).as_posix()] = path.read_bytes()
    return Image(files, frozenset(directories))
