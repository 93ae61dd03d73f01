# SPDX-License-Identifier: GPL-2.0-or-later
"""Read kernel modules for RDMA and NFS: loaded, available, options, loaded at boot.

modprobe.d(5) and the kernel's command line are read as kmod reads them
(libkmod/libkmod-config.c); of its commands those that set options, or prevent a module
from being loaded. Modules are loaded at boot by modules-load.d(5), by the kernel's
command line, and by rdma-core's lists, which its rdma-load-modules@ units load for the
present hardware.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
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
from ovirt_rdma.host.system.tree import (
    FileTree,
    conf_texts,
    folders_named,
    joined_lines,
)

COMMAND_LINE = "/proc/cmdline"
# The first one is the kernel's (kernel/module).
_BLACKLISTS = ("module_blacklist", "modprobe.blacklist")
# systemd-modules-load.service(8); the second parameter is for the initrd.
_LOADS = ("modules_load", "rd.modules_load")


def modprobe_lines(path: str, text: str) -> Iterator[ModprobeLine]:
    """Yield the lines of a file that have an effect on a module for RDMA or NFS."""
    for number, line in joined_lines(text):
        command, name, words = (*line.split(maxsplit=2), "", "", "")[:3]
        module = module_name(name)
        if module in CONCERNED and command == "blacklist":
            yield ModprobeLine(path, number, command, module)
        elif module in CONCERNED and command in ("install", "options") and words:
            yield ModprobeLine(path, number, command, module, words.strip())


def load_lines(path: str, text: str) -> Iterator[LoadLine]:
    """Yield the lines of a file that are one name, with the kernel's names of the
    modules; others load nothing.
    """
    for number, line in enumerate(text.split("\n"), 1):
        name = line.strip()
        if _NAME.fullmatch(name) and not name.startswith(("#", ";")):
            yield LoadLine(path, number, module_name(name))


def parameters_of(text: str) -> list[str]:
    """Return the kernel's parameters.

    Quotes can enclose blanks and stay in the value, as in ``parport.dyndbg="file x"``.
    Quotes of a boot loader around a whole parameter are removed.
    """
    words = re.findall(r'(?:"[^"]*"?|[^\s"])+', text, re.ASCII)
    return [
        word.strip('"') if word[:1] == '"' and word.count('"') <= 2 else word
        for word in words
    ]


def parameter_lines(
    parameters: Iterable[str],
) -> tuple[list[ModprobeLine], list[LoadLine]]:
    """Return ``MODULE.NAME=VALUE`` as options, and both blacklists; and what is loaded
    at boot.
    """
    lines: list[tuple[str, str, str]] = []
    loads: list[str] = []
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        module, _, option = parameter.partition(".")
        if name in _BLACKLISTS:
            lines += [("blacklist", one, "") for one in value.split(",")]
        elif name in _LOADS:
            loads += filter(_NAME.fullmatch, value.split(","))
        elif name.count(".") == 1:
            lines.append(("options", module, option))
    return (
        [
            ModprobeLine(COMMAND_LINE, 1, command, module_name(module), text)
            for command, module, text in lines
            if module_name(module) in CONCERNED
        ],
        [LoadLine(COMMAND_LINE, 1, module_name(name)) for name in loads],
    )


LOADED = "/proc/modules"
RDMA_CORE_LISTS = "/etc/rdma/modules"

_FILE = re.compile(r"(.+)\.ko(?:\.[a-z0-9]+)?")
# Names of modules and aliases in the kernel have only these characters.
_NAME = re.compile(r"[!-~]+")


def read_modules(
    tree: FileTree, release: str, problems: list[str], details: bool = False
) -> Modules:
    """Return the modules out of CONCERNED, for the running kernel ``release``; with the
    ``details`` that a mount does not need.

    Without modules.dep for that kernel the available modules are unknown. Parameters
    that cannot be read are left out.
    """
    loaded = _loaded(tree.data(LOADED, problems) or b"")
    folder = f"/lib/modules/{release}"
    built_in = module_paths(tree.data(f"{folder}/modules.builtin") or b"")
    dependencies = tree.data(f"{folder}/modules.dep", problems)
    files = module_paths(dependencies or b"")
    available = None if dependencies is None else _concerned({**files, **built_in})
    modules = Modules(_concerned({*loaded, *built_in}), available)
    return _with_details(tree, modules, files, problems) if details else modules


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


def module_paths(data: bytes) -> dict[str, str]:
    """Read modules.dep (``path: paths it needs``) or modules.builtin (``path``).

    Returns file names, without suffix, to paths. A file is name.ko, or compressed:
    name.ko.xz (EL9), name.ko.zst.
    """
    paths = {}
    for line in data.decode("utf-8", "surrogateescape").split("\n"):
        path = line.partition(":")[0].strip()
        match = _FILE.fullmatch(posixpath.basename(path))
        if match:
            paths[match.group(1)] = path
    return paths


def _with_details(
    tree: FileTree, modules: Modules, files: Mapping[str, str], problems: list[str]
) -> Modules:
    """Add files, parameters and lines. These are in the order in which modprobe reads
    them: later options of a module add to earlier ones; the last of the same name is
    used.
    """
    found = [ModuleFile(module_name(name), path) for name, path in files.items()]
    parameters = []
    for module in modules.loaded:
        folder = f"/sys/module/{module}/parameters"
        for name in tree.names(folder):
            value = tree.data(f"{folder}/{name}")
            if value is not None:
                text = value.decode("utf-8", "surrogateescape").strip()
                parameters.append(ModuleParameter(module, name, text))
    lines: list[ModprobeLine] = []
    for path, text in conf_texts(tree, folders_named("modprobe.d"), ".conf", problems):
        lines += modprobe_lines(path, text)
    loads: list[LoadLine] = []
    for folders in (folders_named("modules-load.d"), (RDMA_CORE_LISTS,)):
        for path, text in conf_texts(tree, folders, ".conf", problems):
            loads += load_lines(path, text)
    given = parameter_lines(parameters_of(tree.text(COMMAND_LINE, problems) or ""))
    return replace(
        modules,
        files=tuple(
            sorted(
                (one for one in found if one.name in CONCERNED),
                key=lambda file: (file.name, file.path),
            )
        ),
        parameters=tuple(parameters),
        modprobe_lines=(*lines, *given[0]),
        load_lines=(*loads, *given[1]),
    )
