# SPDX-License-Identifier: GPL-2.0-or-later
"""What this host's nfs-utils makes of a file of ours, before it is put into place.

Up to nfs-utils 2.8.2 a section takes the same keys away from every section of its
kind that was read before: of several MountPoint sections the last one is left, of
whatever file (conffile.c, conf_remove_now; corrected in 2.8.3, and by distributors).
No version number tells, so nfsconf(8) is asked, which has the parser of mount.nfs.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Optional

from ovirt_rdma.host.commands import CommandFailed, Runner
from ovirt_rdma.host.nfsmount_conf import NfsmountRefused, Rendered
from ovirt_rdma.host.paths import (
    NFSMOUNT_CONF,
    NFSMOUNT_DIRECTORY,
    NFSMOUNT_FILE,
    under,
)
from ovirt_rdma.host.safe_file import read_file

Settings = dict[tuple[str, str], str]
"""Section header and key, both in lower case, to value."""


def read_settings(root: Path, run: Runner, ours: Optional[str] = None) -> Settings:
    """Return what mount.nfs reads on the host below ``root``, with the text ``ours``
    in the place of our file, or with that file as it is.

    Copies in a folder of their own are read. Raises CommandFailed where nfsconf
    cannot tell, OSError where a file cannot be copied.
    """
    with tempfile.TemporaryDirectory(prefix="ovirt-rdma-") as place:
        conf = Path(place) / Path(NFSMOUNT_CONF).name
        folder = Path(place) / Path(NFSMOUNT_DIRECTORY).name
        # mount.nfs does without this file, nfsconf does not.
        conf.touch()
        folder.mkdir()
        if under(root, NFSMOUNT_CONF).exists():
            conf.write_bytes(read_file(under(root, NFSMOUNT_CONF)))
        for path in under(root, NFSMOUNT_DIRECTORY).glob("*.conf"):
            if path.is_file():
                (folder / path.name).write_bytes(read_file(path))
        if ours is not None:
            text = ours.encode("utf-8", "surrogateescape")
            (folder / Path(NFSMOUNT_FILE).name).write_bytes(text)
        return parse_dump(run(("nfsconf", "--file", str(conf), "--dump")))


def parse_dump(text: str) -> Settings:
    """Read the output of ``nfsconf --dump``. Pure."""
    settings: Settings = {}
    header = ""
    for line in text.splitlines():
        if line.startswith("["):
            header = line.lower()
        elif " = " in line:
            key, _, value = line.strip().partition(" = ")
            settings[header, key.lower()] = value
    return settings


def wanted_settings(rendered: Rendered) -> Settings:
    """Return what mount.nfs should read from our own file. Pure."""
    return {
        (f'[mountpoint "{section.mount_point}"]'.lower(), key.lower()): _bare(value)
        for section in rendered.sections
        for key, _, value in (line.partition("=") for line in section.lines)
    }


def lost(wanted: Settings, found: Settings) -> tuple[str, ...]:
    """Name the sections of ``wanted`` that ``found`` does not have whole. Pure."""
    missing = [
        name for (name, key) in wanted if found.get((name, key)) != wanted[name, key]
    ]
    return tuple(dict.fromkeys(missing))


def prove(rendered: Rendered, text: str, root: Path, run: Runner) -> None:
    """Raise NfsmountRefused unless mount.nfs would read our file ``text`` whole, and
    all that it reads of other files as well.
    """
    try:
        before = read_settings(root, run, "")
        after = read_settings(root, run, text)
    except OSError as error:
        raise NfsmountRefused(
            f"the file cannot be tried: {error.filename}: {error.strerror}"
        ) from error
    except CommandFailed as failed:
        raise NfsmountRefused(
            f"the file cannot be tried, because nfsconf failed: {failed}",
            "install the package that has mount.nfs and nfsconf (nfs-utils)",
        ) from failed
    gone = lost({**before, **wanted_settings(rendered)}, after)
    if gone:
        raise NfsmountRefused(
            "mount.nfs of this host keeps only the last of several sections of one "
            f"kind, and would not read: {', '.join(gone)}",
            "update nfs-utils (corrected in 2.8.3), or let the policy name one export "
            "only, or use --mode vdsmd",
        )


def _bare(value: str) -> str:
    return value[1:-1] if value[:1] in {"'", '"'} else value
