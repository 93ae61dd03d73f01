# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest's own disk: an image on the machine, with ext4 for all that it writes."""

from __future__ import annotations

import os
from pathlib import Path

from lab.layer_program import run_from

# Sparse: on the machine it takes what the guest has written.
SIZE = 4 << 30


def make_disk(path: Path, layer: Path) -> None:
    """Make the image ``path``, unless it is there; its folder must be.

    ``layer`` is the guest layer, whose mkfs is used. Raises LabProblem if that fails,
    OSError where the image cannot be written; half an image is never left.
    """
    if path.exists():
        return
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as image:
            image.truncate(SIZE)
        # The image reads as zeros where nothing was written.
        options = ["-q", "-F", "-E", "assume_storage_prezeroed=1"]
        run_from(layer, "usr/sbin/mke2fs", "mkfs.ext4", *options, str(draft))
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
