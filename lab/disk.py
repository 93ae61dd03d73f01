# SPDX-License-Identifier: GPL-2.0-or-later
"""Make a guest's own disk: an image with ext4 for everything that the guest writes."""

from __future__ import annotations

import os
from pathlib import Path

from lab.layer_program import run_from

# In bytes; sparse, so it uses only the space that the guest has written.
SIZE = 4 << 30


def make_disk(path: Path, layer: Path) -> None:
    """Make the image ``path`` unless it exists; its folder must exist.

    ``layer`` is the guest layer, whose mkfs is used. Raises LabProblem if that fails,
    OSError if the image cannot be written; an incomplete image is never left.
    """
    if path.exists():
        return
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as image:
            image.truncate(SIZE)
        # Parts of the image that were not written read as zeros.
        options = ["-q", "-F", "-E", "assume_storage_prezeroed=1"]
        run_from(layer, "usr/sbin/mke2fs", "mkfs.ext4", *options, str(draft))
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
