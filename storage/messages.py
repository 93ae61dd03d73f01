# SPDX-License-Identifier: GPL-2.0-or-later
"""Say what the messages of mount.nfs and of the kernel's RDMA parts mean.

docs/reference/messages.md has both tables, and is installed: ``explain`` searches them,
and a mount that failed is explained by the first one. What a message means for other
attempts is here, so that nothing is decided by a page.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, replace
from pathlib import Path

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.system.safe_file import read_file

# Parts of mount's lines, measured on kernel 6.1 with nfs-utils 2.6.2. The texts are
# those of nfs-utils 2.3.3 to 2.9 (utils/mount: mount_error() in error.c, stropts.c,
# network.c), which from 2.6.3 on end in " for MOUNTPOINT" or " for EXPORT on
# MOUNTPOINT", and of strerror(3). The server refused this path or this client, so
# another transport would fail too:
ABOUT_EXPORT = (
    "reason given by server: No such file or directory",
    "access denied by server",
)
# It means that over RDMA only:
RDMA_ONLY = ("Protocol error",)
# The other exports of the server would fail over this transport too:
ABOUT_SERVER = (
    "Connection refused",
    *RDMA_ONLY,
    "Connection timed out",
    "No route to host",
    "Network is unreachable",
    "No such device",
)


@dataclass(frozen=True)
class MountFailure:
    """Why a mount failed; mount.nfs exits with 32 for every failure, so only its text
    shows the cause.

    ``text`` is the last line that mount printed; in the table, a part of one.
    ``meaning`` and ``fix`` are for the admin; ``rdma_fix`` replaces ``fix`` over RDMA.
    """

    text: str
    meaning: str
    fix: str = ""
    rdma_fix: str = ""
    about_export: bool = False
    about_server: bool = False


# The page with both tables: in a checkout, and where the package installs it.
PAGES = (
    Path(__file__).resolve().parents[1] / "docs/reference/messages.md",
    Path("/usr/share/ovirt-rdma/messages.md"),
)
_ROW = re.compile(r"^\| `(.+)` \| (.+?) \| (.+?) \| (.+) \|$", re.MULTILINE)


def read_messages() -> tuple[list[MountFailure], list[MountFailure]]:
    """Return the messages of mount.nfs, and those of the kernel's log and of tools, as
    the page has them. Raises Problem if it cannot be read.
    """
    page = next((each for each in PAGES if each.is_file()), PAGES[-1])
    try:
        text = read_file(page).decode().replace("\\|", "|")
    except (OSError, ValueError) as error:
        raise Problem(
            "messages-unreadable",
            f"the messages, {page}, cannot be read: {error}",
            "install the package ovirt-rdma-host again",
        ) from error
    mount, _, log = text.partition("\n## The kernel's log")
    return (
        [
            MountFailure(words, meaning, fix, "" if rdma == "the same" else rdma)
            for words, meaning, fix, rdma in _ROW.findall(mount)
        ],
        [MountFailure(*row[:3]) for row in _ROW.findall(log)],
    )


def classify(stderr: bytes, over_rdma: bool) -> MountFailure:
    """Return what went wrong, from mount's standard error; never raises."""
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    text = lines[-1].strip() if lines else "mount printed no error"
    known = [MountFailure(one, "the cause is unknown") for one in ABOUT_EXPORT]
    known += [MountFailure(one, "the cause is unknown") for one in ABOUT_SERVER]
    with contextlib.suppress(Problem):
        known = read_messages()[0]
    for one in known:
        is_it = over_rdma or one.text not in RDMA_ONLY
        if is_it and any(one.text in line for line in lines):
            return replace(
                one,
                text=text,
                fix=(over_rdma and one.rdma_fix) or one.fix,
                about_export=one.text in ABOUT_EXPORT,
                about_server=one.text in ABOUT_SERVER,
            )
    return MountFailure(text, "the cause is unknown")


def known_in(text: str) -> list[MountFailure]:
    """Return the rows of both tables whose text is in ``text``, or has it, in any case;
    those of the kernel's log first.
    """
    wanted = text.lower().strip()
    mount, log = read_messages()
    return [
        known
        for known in (*log, *mount)
        if known.text.lower() in wanted
        or (len(wanted) > 5 and wanted in known.text.lower())
    ]
