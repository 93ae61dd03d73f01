# SPDX-License-Identifier: GPL-2.0-or-later
"""Read kernel modules for RDMA and NFS: loaded, available, options, loaded at boot.

modprobe.d(5) and the kernel's command line are read as kmod reads them
(libkmod/libkmod-config.c). Modules are loaded at boot by modules-load.d(5), by the
kernel's command line, and by rdma-core's lists, which its rdma-load-modules@ units load
for the present hardware.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ovirt_rdma.host.facts.model import (
    CONCERNED,
    LoadLine,
    ModprobeLine,
    ModuleFile,
    ModuleParameter,
    Modules,
    module_name,
)
from ovirt_rdma.host.system.tree import FileTree, conf_texts, folders_named

COMMAND_LINE = "/proc/cmdline"

# True: the module's name must be followed by more. A newer kmod has weakdep too.
_COMMANDS = {
    "alias": True,
    "blacklist": False,
    "install": True,
    "options": True,
    "remove": True,
    "softdep": True,
    "weakdep": True,
}
# The number of words after the module's name that modprobe uses; it ignores others.
_WORDS_TAKEN = {"alias": 1, "blacklist": 0}
# The rest of these lines names modules too.
_NAMES_OTHERS = frozenset(("alias", "softdep", "weakdep"))
_BLANK = re.compile(r"[\t ]+")
# The first one is the kernel's (kernel/module).
_BLACKLISTS = ("module_blacklist", "modprobe.blacklist")


def read_modprobe_lines(
    tree: FileTree, problems: list[str]
) -> tuple[ModprobeLine, ...]:
    """Return the lines in the order in which modprobe reads them.

    Later options of a module add to earlier ones; the last of the same name is used.
    """
    lines: list[ModprobeLine] = []
    for path, text in conf_texts(tree, folders_named("modprobe.d"), ".conf", problems):
        lines += modprobe_lines(path, text, problems)
    return (*lines, *command_line_options(command_line(tree, problems)))


def modprobe_lines(path: str, text: str, problems: list[str]) -> list[ModprobeLine]:
    """Return the lines of a file that concern RDMA or NFS.

    A line about such a module that modprobe ignores gets a sentence, and so does a line
    without a module.
    """
    lines = []
    for number, line in _joined(text):
        plain = line.strip("\t ")
        if not plain or plain.startswith("#"):
            continue
        words = _BLANK.split(plain, maxsplit=2)
        command, name, text_after = (*words, "", "")[:3]
        text_after = text_after.strip()
        if command in _WORDS_TAKEN:
            text_after = " ".join(_BLANK.split(text_after)[: _WORDS_TAKEN[command]])
        nameless = command in _COMMANDS and not name
        others = text_after.split() if command in _NAMES_OTHERS else ()
        if not nameless and CONCERNED.isdisjoint(map(module_name, (name, *others))):
            continue
        complete = text_after or not _COMMANDS.get(command, True)
        if nameless or command not in _COMMANDS or not complete:
            reason = f"ignored by modprobe: {plain[:60]!a}"
            problems.append(f"{path} line {number} is {reason}")
        else:
            lines.append(
                ModprobeLine(path, number, command, module_name(name), text_after)
            )
    return lines


def command_line(tree: FileTree, problems: list[str]) -> list[str]:
    """Return the kernel's parameters.

    Quotes can enclose blanks and stay in the value, as in ``parport.dyndbg="file x"``.
    Quotes of a boot loader around a whole parameter are removed.
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
    lines = []
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name in _BLACKLISTS:
            lines += [("blacklist", module, "") for module in value.split(",")]
        elif name.count(".") == 1:
            module, _, option = parameter.partition(".")
            lines.append(("options", module, option))
    return [
        ModprobeLine(COMMAND_LINE, 1, command, module_name(module), text)
        for command, module, text in lines
        if module_name(module) in CONCERNED
    ]


def _joined(text: str) -> Iterator[tuple[int, str]]:
    r"""Yield the lines with their numbers; ``\`` at the end joins the next line.

    This applies to comments too. Before any other character ``\`` is removed.
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


LOADED = "/proc/modules"

_FILE = re.compile(r"(.+)\.ko(?:\.[a-z0-9]+)?")


def read_modules(tree: FileTree, release: str, problems: list[str]) -> Modules:
    """Return the modules out of CONCERNED, for the running kernel ``release``.

    Without modules.dep for that kernel the available modules are unknown. That and an
    unreadable /proc/modules get a sentence in ``problems``.
    """
    loaded = _loaded(tree.data(LOADED, problems) or b"")
    folder = f"/lib/modules/{release}"
    built_in = module_paths(tree.data(f"{folder}/modules.builtin") or b"")
    dependencies = tree.data(f"{folder}/modules.dep", problems)
    available = None
    if dependencies is not None:
        available = _concerned({**module_paths(dependencies), **built_in})
    return Modules(_concerned({*loaded, *built_in}), available)


def _concerned(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(CONCERNED & {module_name(name) for name in names}))


def _loaded(data: bytes) -> set[str]:
    """Read ``name size users dependants state address``; a module that is being loaded
    or unloaded does not count as loaded.
    """
    names = set()
    for line in data.decode("utf-8", "surrogateescape").split("\n"):
        fields = line.split()
        if fields and (len(fields) < 5 or fields[4] == "Live"):
            names.add(fields[0])
    return names


def module_paths(data: bytes, folder: str = "") -> dict[str, str]:
    """Read modules.dep (``path: paths it needs``) or modules.builtin (``path``).

    Returns file names, without suffix, to paths. depmod writes paths relative to
    ``folder``; absolute paths of other tools are made relative. A file is name.ko, or
    compressed: name.ko.xz (EL9), name.ko.zst.
    """
    starts = tuple(f"{usr}{folder}/" for usr in ("", "/usr")) if folder else ()
    paths = {}
    for line in data.decode("utf-8", "surrogateescape").split("\n"):
        path = line.partition(":")[0].strip()
        match = _FILE.fullmatch(posixpath.basename(path))
        if match:
            start = next((s for s in starts if path.startswith(s)), "")
            paths[match.group(1)] = path[len(start) :]
    return paths


RDMA_CORE_LISTS = "/etc/rdma/modules"

_COMMENT = ("#", ";")
# Names of modules and aliases in the kernel have only these characters.
_NAME = re.compile(r"[!-~]+")
# systemd-modules-load.service(8); the second parameter is for the initrd.
_PARAMETERS = ("modules_load", "rd.modules_load")


def read_load_lines(tree: FileTree, problems: list[str]) -> tuple[LoadLine, ...]:
    """Return the lines of all modules, with the kernel's names of the modules."""
    lines: list[LoadLine] = []
    for folders in (folders_named("modules-load.d"), (RDMA_CORE_LISTS,)):
        for path, text in conf_texts(tree, folders, ".conf", problems):
            lines += load_lines(path, text, problems)
    for parameter in command_line(tree, []):  # read_modprobe_lines reports problems
        name, _, value = parameter.partition("=")
        if name in _PARAMETERS:
            lines += [
                LoadLine(COMMAND_LINE, 1, module_name(module))
                for module in value.split(",")
                if _NAME.fullmatch(module)
            ]
    return tuple(lines)


def load_lines(path: str, text: str, problems: list[str]) -> list[LoadLine]:
    """Return the lines of a file; a line that is not one name gets a sentence."""
    lines = []
    for number, line in enumerate(text.split("\n"), 1):
        name = line.strip()
        if not name or name.startswith(_COMMENT):
            continue
        if _NAME.fullmatch(name):
            lines.append(LoadLine(path, number, module_name(name)))
        else:
            problems.append(
                f"{path} line {number} is ignored: {name[:60]!a} is not a module's name"
            )
    return lines


def with_module_details(
    tree: FileTree, release: str, modules: Modules, problems: list[str]
) -> Modules:
    """Return ``modules`` with details that a mount does not need.

    ``release`` is that of the running kernel. Parameters that cannot be read are left
    out.
    """
    folder = f"/lib/modules/{release}"
    # read_modules has reported modules.dep if it is missing.
    paths = module_paths(tree.data(f"{folder}/modules.dep") or b"", folder)
    files = [
        ModuleFile(module_name(name), path)
        for name, path in paths.items()
        if module_name(name) in CONCERNED
    ]
    parameters = []
    for module in modules.loaded:
        folder = f"/sys/module/{module}/parameters"
        for name in tree.names(folder):
            value = tree.data(f"{folder}/{name}")
            if value is not None:
                text = value.decode("utf-8", "surrogateescape").strip()
                parameters.append(ModuleParameter(module, name, text))
    return replace(
        modules,
        files=tuple(sorted(files, key=lambda file: (file.name, file.path))),
        parameters=tuple(parameters),
        modprobe_lines=read_modprobe_lines(tree, problems),
        load_lines=read_load_lines(tree, problems),
    )
