# SPDX-License-Identifier: GPL-2.0-or-later
"""A double of mount.nfs, umount and rm, over files: also other processes see its state.

It follows nfs-utils (mount.nfs SERVER:/PATH DIR -o OPTIONS; utils/mount/mount.c),
util-linux (umount [-f|-l] DIR) and coreutils (rm -rf --one-file-system -- PATH). A
mount is a link to the folder of the server, and a line in mountinfo. Anything else is
an error of the test.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from ovirt_rdma.host.system.commands import CommandFailed, CommandTimeout

_LINE = "41 28 0:52 / {} rw,relatime shared:1 - nfs4 {} rw,vers=4.2,{}\n"


class FakeMount:
    """The mounts below ``root``; ``server`` is the folder that the server exports.

    ``refusals`` are texts of mount.nfs by a part of the options. ``unmoved``: how many
    umounts fail, as with a server that is dead. ``dead``: rm gets no answer.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.server = root / "server"
        self.server.mkdir()
        (root / "run").mkdir()
        self.mountinfo = root / "proc/self/mountinfo"
        self.mountinfo.parent.mkdir(parents=True, exist_ok=True)
        self.mountinfo.write_text("28 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
        self.log = root / "commands"
        self.log.touch()
        self.refusals: dict[str, str] = {}
        self.unmoved = 0
        self.dead = False

    @property
    def commands(self) -> list[str]:
        """The commands that were run, in their order."""
        return self.log.read_text().splitlines()

    def __call__(self, argv: Sequence[str], timeout_s: float) -> str:
        """Run a command, as run_command does."""
        assert timeout_s > 0
        words = list(argv)
        with self.log.open("a") as log:
            log.write(" ".join(words) + "\n")
        if words[0] == "mount.nfs":
            self._mount(words)
        elif words[0] == "umount":
            self._umount(words)
        else:
            assert words[:4] == ["rm", "-rf", "--one-file-system", "--"]
            if self.dead:
                raise CommandTimeout("no answer within 60 s")
            folder = Path(words[4])
            # Only the scratch folder of a mounted export.
            assert folder.name.startswith(".ovirt-rdma-bench-")
            assert folder.parent.is_symlink()
            shutil.rmtree(folder, ignore_errors=True)
        return ""

    def _mount(self, words: list[str]) -> None:
        _, export, folder, flag, options = words
        assert flag == "-o"
        for part, text in self.refusals.items():
            if part in options:
                raise CommandFailed(text, 32)
        place = Path(folder)
        assert place.is_dir()
        assert not place.is_symlink(), "mounted twice"
        place.rmdir()
        place.symlink_to(self.server)
        with self.mountinfo.open("a") as stream:
            stream.write(_LINE.format(folder, export, options))

    def _umount(self, words: list[str]) -> None:
        *flags, folder = words[1:]
        assert flags in ([], ["-f"], ["-l"])
        if self.unmoved:
            self.unmoved -= 1
            raise CommandFailed("target is busy", 32)
        place = Path(folder)
        place.unlink()
        place.mkdir()
        lines = self.mountinfo.read_text().splitlines(keepends=True)
        left = [line for line in lines if f" {folder} " not in line]
        self.mountinfo.write_text("".join(left))

    def is_clean(self) -> bool:
        """Whether neither a mount nor anything on the server is left."""
        mounted = len(self.mountinfo.read_text().splitlines()) > 1
        return not mounted and not any(self.server.iterdir())
