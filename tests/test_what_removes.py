# SPDX-License-Identifier: GPL-2.0-or-later
"""Each place that removes something is in docs/security.md, with what it can meet, or
here, if no package has it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).parents[1]
ROOMS = (
    "Makefile",
    "bench",
    "cli",
    "engine_sdk_tools",
    "host",
    "host_deploy",
    "lab",
    "rpm",
    "sos_plugin",
    "storage",
    "tools",
    "vdsm_hooks",
)
# Texts for people that name a command: they remove nothing.
TEXTS = {
    "storage/mounts.py": "conflict_fix",
    "storage/vdsm/export.py": "_existing",
}
# Never packaged. These remove single files that they made, things in a guest, or
# folders of the cache, of builds, or made by mktemp, in which nothing is mounted.
OF_CHECKOUT = {
    "Makefile": "rm",
    "bench/byte_cost/runs.py": "_all",
    "bench/engine_runs.py": "_run_report",
    "bench/hook_cost_program.py": "main",
    "bench/paths_runs.py": "_daemon",
    "bench/policy_size_program.py": "_load",
    "lab/boot/init": "rm",
    "lab/boot/systemd/prepare": "rm",
    "lab/demo_host.py": "refuse _TIDY_UP",
    "lab/demo_infiniband.py": "_compare",
    "lab/disk.py": "make_disk",
    "lab/fault_site.py": "unmount_all",
    "lab/installed_host.py": "_SET_UP",
    "lab/keeper.py": "main",
    "lab/labelled_root.py": "_CONFIGURE",
    "lab/localio_kernel.py": "_build",
    "lab/nfs_server.py": "_PREPARE",
    "lab/packages.py": "fetched",
    "lab/provision.py": "make_layer",
    "lab/record_block_session.py": "_tell",
    "lab/simulated_fabric.py": "sweep manager",
    "lab/sshd.py": "_NAMESPACE",
    "lab/two_paths.py": "unmount writers",
    "lab/vdsm_host/supervdsmd": "main",
    "lab/vdsm_packages.py": "_SET_UP",
    "tools/install-debian-packages": "rm",
    "tools/man_pages.py": "main",
    "tools/mutants.py": "_write",
    "tools/packages.py": "make_packages",
    "tools/release.py": "make_release",
    "tools/with-memory-tmpdir": "rm",
}
TREES = {"rmtree", "removedirs"}
CALLS = {"unlink", "rmdir", "remove", *TREES}
PROGRAMS = {"rm", "rmdir", "umount", "find", "shred", "unlink"}
IN_SHELL = re.compile(
    r"(?:^|[;&|(@{'\"]|\bthen|\bdo)\s*(rm|rmdir|umount|unlink)\s", re.M
)
# tmpfiles.d(5): the types that remove, and what systemd removes when a unit stops.
OF_TMPFILES = re.compile(r"^[rRD]|^[a-zA-Z]+-", re.M)
OF_UNITS = re.compile(r"^RuntimeDirectory(?==)", re.M)


def _calls(tree: ast.AST, within: str = "") -> Iterator[tuple[str, str]]:
    """Yield function, or constant, and name of each call that removes something, and of
    each program in a text for a shell.
    """
    for node in ast.iter_child_nodes(tree):
        name = node.name if isinstance(node, ast.FunctionDef) else within
        if isinstance(node, ast.Assign) and not within:
            name = ast.unparse(node.targets[0])
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # documentation
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for program in IN_SHELL.findall(node.value):
                yield name, program
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Name) and called.id in CALLS - {"remove"}:
            yield name, called.id
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = getattr(node.func.value, "id", "")
            # A list or a set has "remove" too.
            if node.func.attr in CALLS - {"remove"} or (
                (owner, node.func.attr) == ("os", "remove")
            ):
                yield name, node.func.attr
        if isinstance(node, (ast.List, ast.Tuple)) and node.elts:
            first = node.elts[0]
            if isinstance(first, ast.Constant) and first.value in PROGRAMS:
                yield name, str(first.value)
        yield from _calls(node, name)


def _files() -> Iterator[tuple[str, str]]:
    for room in ROOMS:
        for path in sorted([TOP / room, *(TOP / room).rglob("*")]):
            name = str(path.relative_to(TOP))
            # The list of mutants quotes code.
            if name == "tools/mutants.yaml":
                continue
            if path.is_file() and "__pycache__" not in name and "/tests/" not in name:
                yield name, path.read_text(errors="replace")


def _removing(name: str, text: str) -> set[str]:
    """Return what in a file removes something: functions, or programs of a shell."""
    first = text.partition("\n")[0]
    if name.endswith(".py") or (first.startswith("#!") and "python" in first):
        return {function for function, _ in _calls(ast.parse(text))}
    code = re.sub(r"^\s*#.*$", "", text, flags=re.M)
    shell = (".sh", ".spec", ".macros", ".yml", "Makefile", "prepare", "init")
    if name.endswith(shell) or first.startswith("#!"):
        return set(IN_SHELL.findall(code))
    if name.endswith(".conf") and "tmpfiles" in name:
        return set(OF_TMPFILES.findall(code))
    if name.endswith((".service", ".timer")):
        return set(OF_UNITS.findall(code))
    return set()


def _in_source() -> dict[str, set[str]]:
    return {name: found for name, text in _files() if (found := _removing(name, text))}


def _in_table() -> dict[str, set[str]]:
    text = (TOP / "docs/security.md").read_text()
    _, _, section = text.partition("\n## What removes files\n")
    rows = re.findall(
        r"^\| `([^`]+)` \| ([^|]+) \|", section.partition("\n## ")[0], re.M
    )
    shown = {name: set(re.findall(r"`([^`]+)`", where)) for name, where in rows}
    others = {name: set(where.split()) for name, where in (OF_CHECKOUT | TEXTS).items()}
    assert not shown.keys() & others.keys()
    return shown | others


def test_the_table_has_each_place_that_removes():
    assert _in_table() == _in_source()


def test_no_tree_is_removed_but_that_of_a_run():
    """A tree may have a mount below: its content would be lost with it."""
    assert [
        f"{name}: {function}"
        for name, text in _files()
        if name.endswith(".py") and name not in OF_CHECKOUT
        for function, call in _calls(ast.parse(text))
        if call in TREES
    ] == ["engine_sdk_tools/hosts/ansible_run.py: _remove"] * 2
