# SPDX-License-Identifier: GPL-2.0-or-later
"""modprobe.d(5) and the kernel's command line, read as kmod reads them
(libkmod/libkmod-config.c): what they say of modules that concern RDMA and NFS.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ovirt_rdma.host.conf_folders import conf_texts, folders_named
from ovirt_rdma.host.facts import ModprobeLine
from ovirt_rdma.host.file_tree import FileTree
from ovirt_rdma.host.module_names import CONCERNED, module_name

COMMAND_LINE = "/proc/cmdline"

# True: something has to follow the module's name. A newer kmod has weakdep too.
_COMMANDS = {
    "alias": True,
    "blacklist": False,
    "install": True,
    "options": True,
    "remove": True,
    "softdep": True,
    "weakdep": True,
}
# How many words count after the module's name; modprobe ignores more.
_WORDS_TAKEN = {"alias": 1, "blacklist": 0}
# What follows names modules, so that the line may be about them.
_NAMES_OTHERS = frozenset(("alias", "softdep", "weakdep"))
_BLANK = re.compile(r"[\t ]+")
# The first one is the kernel's own: module_blacklist in kernel/module.
_BLACKLISTS = ("module_blacklist", "modprobe.blacklist")


def read_modprobe_lines(
    tree: FileTree, problems: list[str]
) -> tuple[ModprobeLine, ...]:
    """Return the lines in the order in which modprobe reads them; later options of
    a module add to earlier ones, and the last of the same name is in force.
    """
    found: list[ModprobeLine] = []
    for path, text in conf_texts(tree, folders_named("modprobe.d"), ".conf", problems):
        found += modprobe_lines(path, text, problems)
    return (*found, *command_line_options(command_line(tree, problems)))


def modprobe_lines(path: str, text: str, problems: list[str]) -> list[ModprobeLine]:
    """Return a file's lines that concern us.

    A line that modprobe ignores although it is about such a module gets a sentence,
    and so does one that names no module at all.
    """
    found = []
    for number, line in _joined(text):
        plain = line.strip("\t ")
        if not plain or plain.startswith("#"):
            continue
        words = _BLANK.split(plain, maxsplit=2)
        command, name, text_after = (*words, "", "")[:3]
        text_after = text_after.strip()
        if command in _WORDS_TAKEN:
            text_after = " ".join(_BLANK.split(text_after)[: _WORDS_TAKEN[command]])
        why = ""
        if command in _COMMANDS and not name:
            why = f"{command} of no module"
        elif not _concerns(command, name, text_after):
            continue
        elif command not in _COMMANDS:
            why = f"it has no command {command!a}"
        elif _COMMANDS[command] and not text_after:
            why = f"nothing follows {command} {name}"
        if why:
            problems.append(f"{path} line {number} is ignored by modprobe: {why}")
        else:
            found.append(
                ModprobeLine(path, number, command, module_name(name), text_after)
            )
    return found


def command_line(tree: FileTree, problems: list[str]) -> list[str]:
    """Return the kernel's parameters; quotes keep blanks together and stay in the
    value, as in ``parport.dyndbg="file x"``. A boot loader's quotes around the whole
    are taken away.
    """
    data = tree.data(COMMAND_LINE, problems) or b""
    words = re.findall(
        r'(?:"[^"]*"?|[^\s"])+', data.decode("utf-8", "surrogateescape"), re.ASCII
    )
    return [
        word.strip('"') if word[:1] == '"' and word.count('"') <= 2 else word
        for word in words
    ]


def command_line_options(parameters: list[str]) -> list[ModprobeLine]:
    """Return ``MODULE.NAME=VALUE`` as options, and both blacklists."""
    found = []
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name in _BLACKLISTS:
            found += [("blacklist", module, "") for module in value.split(",")]
        elif name.count(".") == 1:
            module, _, option = parameter.partition(".")
            found.append(("options", module, option))
    return [
        ModprobeLine(COMMAND_LINE, 1, command, module_name(module), text)
        for command, module, text in found
        if module_name(module) in CONCERNED
    ]


def _concerns(command: str, name: str, text: str) -> bool:
    words = [name, *(text.split() if command in _NAMES_OTHERS else ())]
    return any(module_name(word) in CONCERNED for word in words)


def _joined(text: str) -> Iterator[tuple[int, str]]:
    r"""Give the lines with the numbers of their first ones, ``\`` at an end joining
    the next. That goes for comments too; before anything else ``\`` vanishes.
    """
    start, parts = 1, []
    for number, line in enumerate(text.split("\n"), 1):
        pieces = re.split(r"\\(.)", line, flags=re.DOTALL)
        parts += pieces
        if pieces[-1].endswith("\\"):
            parts[-1] = pieces[-1][:-1]
            continue
        yield start, "".join(parts)
        start, parts = number + 1, []
    if parts:
        yield start, "".join(parts)
