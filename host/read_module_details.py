# SPDX-License-Identifier: GPL-2.0-or-later
"""Where modules come from, their options, and what loads them."""

from __future__ import annotations

from dataclasses import replace

from ovirt_rdma.host.facts import ModuleFile, ModuleParameter, Modules
from ovirt_rdma.host.file_tree import FileTree
from ovirt_rdma.host.modprobe_files import read_modprobe_lines
from ovirt_rdma.host.module_loads import read_load_lines
from ovirt_rdma.host.module_names import CONCERNED, module_name
from ovirt_rdma.host.read_modules import module_paths


def with_module_details(
    tree: FileTree, release: str, modules: Modules, problems: list[str]
) -> Modules:
    """Return ``modules`` with what mounting does not ask for.

    ``release`` is the running kernel's. Parameters that can only be written, or not
    be read for another reason, are left out.
    """
    return replace(
        modules,
        files=_files(tree, f"/lib/modules/{release}"),
        parameters=_parameters(tree, modules.loaded),
        modprobe_lines=read_modprobe_lines(tree, problems),
        load_lines=read_load_lines(tree, problems),
    )


def _files(tree: FileTree, folder: str) -> tuple[ModuleFile, ...]:
    """Read modules.dep; that it is missing has been said by read_modules."""
    paths = module_paths(tree.data(f"{folder}/modules.dep") or b"", folder)
    found = (
        ModuleFile(module_name(name), path)
        for name, path in paths.items()
        if module_name(name) in CONCERNED
    )
    return tuple(sorted(found, key=lambda file: (file.name, file.path)))


def _parameters(tree: FileTree, loaded: tuple[str, ...]) -> tuple[ModuleParameter, ...]:
    found = []
    for module in loaded:
        folder = f"/sys/module/{module}/parameters"
        for name in tree.names(folder):
            value = tree.data(f"{folder}/{name}")
            if value is not None:
                text = value.decode("utf-8", "surrogateescape").strip()
                found.append(ModuleParameter(module, name, text))
    return tuple(found)
