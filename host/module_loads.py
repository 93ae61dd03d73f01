# SPDX-License-Identifier: GPL-2.0-or-later
"""What has modules loaded at boot: modules-load.d(5), the kernel's command line, and
rdma-core's lists, which its rdma-load-modules@ units load for hardware that is there.
"""

from __future__ import annotations

import re

from ovirt_rdma.host.conf_folders import conf_texts, folders_named
from ovirt_rdma.host.facts import LoadLine
from ovirt_rdma.host.file_tree import FileTree
from ovirt_rdma.host.modprobe_files import COMMAND_LINE, command_line
from ovirt_rdma.host.module_names import module_name

RDMA_CORE_LISTS = "/etc/rdma/modules"

_COMMENT = ("#", ";")
# Names of modules and of their aliases; the kernel's have no other characters.
_NAME = re.compile(r"[!-~]+")
# systemd-modules-load.service(8); the second one is read in the initrd.
_PARAMETERS = ("modules_load", "rd.modules_load")


def read_load_lines(tree: FileTree, problems: list[str]) -> tuple[LoadLine, ...]:
    """Return the lines of all modules, under the kernel's names of them."""
    found: list[LoadLine] = []
    for folders in (folders_named("modules-load.d"), (RDMA_CORE_LISTS,)):
        for path, text in conf_texts(tree, folders, ".conf", problems):
            found += load_lines(path, text, problems)
    for parameter in command_line(tree, []):  # its problems are told elsewhere
        name, _, value = parameter.partition("=")
        if name in _PARAMETERS:
            found += [
                LoadLine(COMMAND_LINE, 1, module_name(module))
                for module in value.split(",")
                if _NAME.fullmatch(module)
            ]
    return tuple(found)


def load_lines(path: str, text: str, problems: list[str]) -> list[LoadLine]:
    """Return a file's lines; one that is no single name gets a sentence."""
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        name = line.strip()
        if not name or name.startswith(_COMMENT):
            continue
        if _NAME.fullmatch(name):
            found.append(LoadLine(path, number, module_name(name)))
        else:
            problems.append(
                f"{path} line {number} loads nothing: {name[:60]!a} is no module's name"
            )
    return found
