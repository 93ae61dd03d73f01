# SPDX-License-Identifier: GPL-2.0-or-later
"""Which of our programs fapolicyd would refuse to run.

fapolicyd(8) decides on each execve and open. With its rules as shipped a script may
run only if it is trusted: owned by an RPM, or entered in a trust file
(fapolicyd 1.0.2 to 2.0.1, rules.d/42-trusted-elf.rules, 70-trusted-lang.rules,
90-deny-execute.rules). ``fapolicyd-cli --dump-db`` prints what is trusted, a line each
of source, path, size and digest (src/cli/fapolicyd-cli.c, do_dump_db).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ovirt_rdma.host.file_tree import FileTree, Problems
from ovirt_rdma.host.tools import Tools

_CONF = "/etc/fapolicyd/fapolicyd.conf"
# Refusals are then only logged.
_PERMISSIVE = re.compile(rb"^[ \t]*permissive[ \t]*=[ \t]*1[ \t]*$", re.MULTILINE)
ACTIVE = ("systemctl", "show", "-p", "ActiveState", "--value", "fapolicyd.service")
DUMP = ("fapolicyd-cli", "--dump-db")


def refused_programs(
    tree: FileTree, tools: Tools, programs: Sequence[str], problems: Problems = None
) -> tuple[str, ...]:
    """Return those of ``programs`` that fapolicyd does not trust; none where it does
    not run, or only logs, or cannot be asked.

    Admins may have rules that let more run; those are not looked at.
    """
    conf = tree.data(_CONF)
    if conf is None or _PERMISSIVE.search(conf):
        return ()
    if (tools.text(ACTIVE, problems, optional=True) or "").strip() != "active":
        return ()
    dump = tools.text(DUMP, problems, optional=True)
    if dump is None:
        return ()
    lines = (line.partition(" ")[2] for line in dump.splitlines())
    trusted = {line.rsplit(" ", 2)[0] for line in lines}
    return tuple(program for program in programs if program not in trusted)
