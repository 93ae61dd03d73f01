# SPDX-License-Identifier: GPL-2.0-or-later
"""Pack files for a guest as a tar archive, which is unpacked in ``/`` there.

The archive is the input of a command in the guest: files that the machine writes while
a guest is running may not appear in it.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from lab.cache import provisioned


class GuestArchive:
    """Collects files; root owns all of them."""

    def __init__(self) -> None:
        self._content = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._content, mode="w")  # noqa: SIM115

    def add(
        self, content: bytes, place: str, mode: int = 0o644, modified: float = 0
    ) -> None:
        """Add one file; ``place`` is its path in the guest, ``modified`` its time."""
        member = tarfile.TarInfo(place.lstrip("/"))
        member.size, member.mode, member.mtime = len(content), mode, modified
        self._tar.addfile(member, io.BytesIO(content))

    def add_modules(self, folder: Path, place: str) -> None:
        """Add the Python modules in and below ``folder`` under ``place``, and what
        ``lab.layer_program.compile_checkout`` has compiled of them for guests.
        """
        python = (provisioned().layer / "usr/bin/python3").readlink().name
        compiled = f"*.c{python.replace('.', '').replace('python', 'python-')}.pyc"
        for path in sorted((*folder.rglob("*.py"), *folder.rglob(compiled))):
            self.add(
                path.read_bytes(),
                f"{place}/{path.relative_to(folder)}",
                # A compiled module has the time of its source.
                modified=path.stat().st_mtime,
            )

    def add_tree(self, folder: Path) -> None:
        """Add all files and symbolic links below ``folder``, as if that were ``/``,
        files with their modes.
        """
        for path in sorted(folder.rglob("*")):
            place = f"/{path.relative_to(folder)}"
            if path.is_symlink():
                member = tarfile.TarInfo(place.lstrip("/"))
                member.type, member.linkname = tarfile.SYMTYPE, str(path.readlink())
                self._tar.addfile(member)
            elif path.is_file():
                self.add(path.read_bytes(), place, path.stat().st_mode & 0o777)

    def content(self) -> bytes:
        """Return the archive and close it; nothing can be added afterwards."""
        self._tar.close()
        return self._content.getvalue()
