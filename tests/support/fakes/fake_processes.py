# SPDX-License-Identifier: GPL-2.0-or-later
"""Processes of a fake host, as /proc shows them (proc(5))."""

from __future__ import annotations

from pathlib import Path
from typing import Union

VDSM = 36


def run_process(
    root: Path, pid: int, *words: str, user: Union[int, str] = 0, program: str = ""
) -> None:
    """Let the host below ``root`` have a process that was given these ``words``.

    ``user`` is its user, or its four ids; it runs ``program``, or its first word.
    """
    folder = Path(root) / f"proc/{pid}"
    folder.mkdir(parents=True, exist_ok=True)
    line = "".join(f"{word}\0" for word in words)
    (folder / "cmdline").write_bytes(line.encode("utf-8", "surrogateescape"))
    uids = user if isinstance(user, str) else "\t".join([str(user)] * 4)
    name = words[0].rpartition("/")[2] if words else ""
    (folder / "comm").write_text(f"{name[:15]}\n")
    (folder / "status").write_text(f"Name:\t{name}\nUid:\t{uids}\nGid:\t0\t0\t0\t0\n")
    exe = folder / "exe"
    exe.unlink(missing_ok=True)
    exe.symlink_to(program or (words[0] if words else "") or "/bin/true")


def end_process(root: Path, pid: int) -> None:
    """Remove the process."""
    folder = Path(root) / f"proc/{pid}"
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
