# SPDX-License-Identifier: GPL-2.0-or-later
"""Check packages and the direction of imports, as in ARCHITECTURE.md."""

from __future__ import annotations

import ast
import configparser
import dataclasses
import functools
import graphlib
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent
PACKAGE = "ovirt_rdma"
LAUNCHER = TOP / "storage/launcher/vdsmd"

# A package may use itself and these.
USES = {
    "cli": {"engine_sdk_tools", "vdsm_hooks", "storage", "host"},
    "engine_sdk_tools": {"storage", "host"},
    "vdsm_hooks": {"storage", "host"},
    "storage": {"host"},
    "host": set(),
}
# The modules that stock vdsmd loads: they may import only these.
VDSMD_SIDE = (f"{PACKAGE}.storage.vdsm.launch", f"{PACKAGE}.storage.vdsm.connection")
OPENSM_SIDE = f"{PACKAGE}.host.fabric"
DEPENDENCIES = {"yaml"}  # setup.cfg, install_requires
# setup.cfg, extra `engine`: hypervisors have none of them.
ENGINE_DEPENDENCIES = {"ovirtsdk4", "pycurl", "jinja2", "markupsafe"}
ENGINE_SIDE = (f"{PACKAGE}.engine_sdk_tools", f"{PACKAGE}.cli.engine.")


def _sources() -> dict[str, Path]:
    """Return the package's modules by their import names."""
    found = {}
    for room in USES:
        for path in (TOP / room).rglob("*.py"):
            inside = path.relative_to(TOP).with_suffix("").parts
            name = ".".join((PACKAGE, *inside))
            found[name.removesuffix(".__init__")] = path
    return found


SOURCES = _sources()


def _imports(tree: ast.AST, package: str, *, inner: bool = True) -> Iterator[str]:
    """Yield the modules that ``tree`` imports, by full name.

    ``package`` is where relative imports start. ``inner``: also those in functions.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            for alias in node.names:
                member = f"{base}.{alias.name}"
                yield member if member in SOURCES else base
        elif inner or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _imports(node, package, inner=inner)


@functools.cache
def _imported(name: str, *, inner: bool = True) -> set[str]:
    path = SOURCES[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    return set(_imports(ast.parse(path.read_bytes()), package, inner=inner))


def _top(name: str) -> str:
    return name.partition(".")[0]


def _room(name: str) -> str:
    return name.split(".")[1]


def test_every_room_is_in_the_package():
    setup = configparser.ConfigParser()
    setup.read(TOP / "setup.cfg")
    packages = set(setup["options"]["packages"].split())
    assert {name for name, path in SOURCES.items() if path.name == "__init__.py"} == (
        packages
    )
    assert {_room(name) for name in packages} == set(USES)


@pytest.mark.parametrize("room", sorted(USES))
def test_imports_point_downwards(room):
    allowed = USES[room] | {room}
    assert [
        f"{name} imports {other}"
        for name in SOURCES
        if _room(name) == room
        for other in _imported(name)
        if _top(other) == PACKAGE and _room(other) not in allowed
    ] == []


def _package(name: str) -> str:
    return name if SOURCES[name].name == "__init__.py" else name.rpartition(".")[0]


def _package_imports() -> dict[str, set[str]]:
    """Return the packages that each package imports, without itself."""
    found: dict[str, set[str]] = {_package(name): set() for name in SOURCES}
    for name in SOURCES:
        others = {_package(one) for one in _imported(name) if one in SOURCES}
        found[_package(name)] |= others - {_package(name)}
    return found


def test_no_package_imports_itself_in_a_circle():
    graphlib.TopologicalSorter(_package_imports()).prepare()  # raises CycleError


# Decisions read nothing: neither the host, nor through the code that changes it.
PURE = ("host.facts", "host.policy", "host.rules")
READS_OR_CHANGES = ("host.collect", "host.changes", "host.services")


@pytest.mark.parametrize("package", PURE)
def test_what_decides_imports_no_reader(package):
    assert [
        f"{name} imports {other}"
        for name in SOURCES
        if name.startswith(f"{PACKAGE}.{package}.")
        for other in _imported(name)
        if other.startswith(tuple(f"{PACKAGE}.{one}" for one in READS_OR_CHANGES))
    ] == []


def test_no_module_imports_itself_in_a_circle():
    graph = {name: _imported(name, inner=False) & set(SOURCES) for name in SOURCES}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, naming it


@pytest.mark.parametrize(
    "oracle",
    [
        "support/host/change_places.py",
        "support/host/memory_host.py",
        "support/host/ipoib_kernel.py",
        "support/host/ipoib_undo.py",
    ],
)
def test_the_oracle_of_effects_has_data_of_the_product_and_no_code(oracle):
    """An error in code that both share would be in the oracle too."""
    tree = ast.parse((TOP / "tests" / oracle).read_bytes())
    assert [
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and _top(node.module or "") == PACKAGE
        for alias in node.names
        for found in [getattr(importlib.import_module(node.module), alias.name)]
        if not (dataclasses.is_dataclass(found) or isinstance(found, str))
    ] == []


def test_package_needs_what_setup_names_and_no_more():
    """For example neither the lab nor the tests."""
    allowed = sys.stdlib_module_names | DEPENDENCIES | {PACKAGE, "vdsm"}
    assert [
        f"{name} imports {other}"
        for name in SOURCES
        for other in _imported(name)
        if _top(other) not in allowed
        and not (name.startswith(ENGINE_SIDE) and _top(other) in ENGINE_DEPENDENCIES)
    ] == []


@pytest.mark.parametrize(
    "start", [*VDSMD_SIDE, LAUNCHER], ids=["launch", "class", "vdsmd"]
)
def test_vdsmd_loads_no_library_for_us(start):
    if start == LAUNCHER:
        todo = set(_imports(ast.parse(LAUNCHER.read_bytes()), ""))
    else:
        todo = {start}
    ours, others = set(), set()
    while todo:
        name = todo.pop()
        if name in SOURCES and name not in ours:
            ours.add(name)
            todo |= {name.rpartition(".")[0], *_imported(name)}
        elif name not in SOURCES and name != PACKAGE:
            others.add(_top(name))
    assert VDSMD_SIDE[1] in ours
    # What the policy says of a fabric is not what opensm makes of it.
    assert not {name for name in ours if name.startswith(OPENSM_SIDE)}
    assert others - sys.stdlib_module_names - {"vdsm"} == set()


def test_vdsmd_starts_without_the_readers_of_counters():
    """No mount needs them."""
    code = f"import sys, {VDSMD_SIDE[0]}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    assert VDSMD_SIDE[1] in loaded
    assert not {one for one in loaded if one.endswith("statistics")} - {"statistics"}


def test_the_daemon_loads_no_rules_and_changes():
    """4 MB of each hypervisor, for hosts that do not follow partitions."""
    code = "import sys, ovirt_rdma.cli.host.daemon; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert f"{PACKAGE}.storage.paths.mover" in loaded
    names = (
        "host.changes",
        "host.rules",
        "host.daemon.partitions",
        "storage.benchmark",
    )
    assert not loaded & {f"{PACKAGE}.{name}" for name in names}


# The places that open files for reading, safely for pipes, devices and endless files:
# root and VDSM run these packages.
SAFE_FILE = "host/system/safe_file.py"
# Other places that read, and why that ends.
READS = {
    "host/policy/load.py": "what a person names",
    "storage/benchmark/scratch.py": "its own file, which it has open",
    "storage/health/signs.py": "in a child process that its parent gives up",
    "storage/paths/moving.py": "of sysfs, in the folder of one connection",
    "vdsm_hooks/after_get_caps/50_ovirt_rdma": "without waiting, to a limit",
    "engine_sdk_tools/conversion/model.py": "its lock",
    "engine_sdk_tools/hosts/ansible.py": "files of this package",
    "engine_sdk_tools/hosts/ansible_run.py": "of /proc, and the messages of its run",
    "engine_sdk_tools/report/page.py": "files of this package",
}
_READERS = {"read_text", "read_bytes", "open", "copyfile", "copy", "copy2", "copytree"}
_NO_READ = {"O_WRONLY", "O_RDWR", "O_DIRECTORY", "O_PATH", "devnull"}
_NO_READ |= {"w", "wb", "x", "xb"}


def _opens_for_reading(tree: ast.AST) -> list[int]:
    """Return the lines of the calls in ``tree`` that open a file for reading."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        name = getattr(called, "attr", None) or getattr(called, "id", None)
        words = {getattr(one, "attr", getattr(one, "value", "")) for one in _flat(node)}
        # By name, if the flags are combined elsewhere.
        if name in _READERS and not words & _NO_READ:
            found.append(node.lineno)
    return found


def _flat(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the hashable items in ``node``."""
    for one in ast.walk(node):
        if isinstance(one, ast.Attribute) or (
            isinstance(one, ast.Constant) and isinstance(one.value, str)
        ):
            yield one


def test_root_opens_files_in_one_place():
    found = set()
    for room in USES:
        for path in [*(TOP / room).rglob("*.py"), *(TOP / room).glob("*/50_ovirt*")]:
            if _opens_for_reading(ast.parse(path.read_bytes())):
                found.add(str(path.relative_to(TOP)))
    assert found == {SAFE_FILE, *READS}


# What a program prints is collected in one place, to a limit. Others that have a pipe:
PIPES = {
    "host/system/commands.py": "the place",
    "host/block/sessions.py": "waits for a byte, and reads none",
    "storage/benchmark/scratch.py": "fio, whose keeper knows it; output_of reads",
    "storage/readiness.py": "one line of our own program, to a limit",
    "engine_sdk_tools/hosts/ansible_run.py": "a line at a time, each to a limit",
}
_COLLECTS = {"communicate", "check_output", "getoutput", "getstatusoutput", "popen"}


def _collects(tree: ast.AST) -> set[str]:
    """Return the names in ``tree`` that collect what a program prints, to any size."""
    names = {getattr(one, "attr", getattr(one, "id", "")) for one in ast.walk(tree)}
    names |= {one.name for one in ast.walk(tree) if isinstance(one, ast.alias)}
    words = {one.arg for one in ast.walk(tree) if isinstance(one, ast.keyword)}
    return (names & _COLLECTS) | (words & {"capture_output"})


def test_what_a_program_prints_is_collected_in_one_place():
    pipes = set()
    hooks = (TOP / "vdsm_hooks").glob("*/50_ovirt*")
    collection = (TOP / "host_deploy").rglob("*.py")
    for path in [*SOURCES.values(), LAUNCHER, *hooks, *collection]:
        tree, name = ast.parse(path.read_bytes()), str(path.relative_to(TOP))
        assert not _collects(tree), name
        if any(getattr(one, "attr", "") == "PIPE" for one in ast.walk(tree)):
            pipes.add(name)
    assert pipes == set(PIPES)


# The places where text reaches a terminal, and what makes it printable there.
SCREEN = f"{PACKAGE}.cli.output"
STREAMS = {"stdout", "stderr", "__stdout__", "__stderr__"}
# In other packages: getpass, whose question is printable; VDSM's pipe, with a printable
# sentence; the pipe of a worker, and its closed streams; a hook's own file.
WRITERS = {
    (f"{PACKAGE}.cli.engine.session", "getpass"),
    (f"{PACKAGE}.vdsm_hooks.main", "os.write"),
    (f"{PACKAGE}.vdsm_hooks.main", "sys.stdout"),
    (f"{PACKAGE}.vdsm_hooks.main", "sys.stderr"),
    ("after_get_caps", "os.write"),
}
CALLS = {"print", "input", "getpass", "os.write", "redirect_stderr"}


def _called(node: ast.Call) -> str:
    """Return the name of the called function; with its module for os."""
    if isinstance(node.func, ast.Attribute):
        above = node.func.value
        of_os = isinstance(above, ast.Name) and above.id == "os"
        return f"os.{node.func.attr}" if of_os else node.func.attr
    return getattr(node.func, "id", "")


def _ways_out(tree: ast.AST) -> Iterator[str]:
    """Yield what writes, or could, to stdout or stderr; asking their width is allowed.

    A program that is started without its own streams would have ours.
    """
    asked = {
        id(word)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _called(node) == "terminal_width"
        for word in node.args
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) in CALLS:
            yield _called(node)
        elif isinstance(node, ast.Call) and _called(node) in {"Popen", "run"}:
            words = {word.arg for word in node.keywords}
            of_subprocess = "subprocess" in ast.unparse(node.func)
            if of_subprocess and not words & {"capture_output", "stderr"}:
                yield "subprocess"
        elif (
            isinstance(node, ast.Attribute)
            and node.attr in STREAMS
            and isinstance(node.value, ast.Name)
            and id(node) not in asked
            and node.value.id == "sys"
        ):
            yield f"sys.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and node.module in {"sys", "getpass"}:
            yield f"from {node.module}"
        elif isinstance(node, ast.Import):
            yield from (f"{one.name} as" for one in node.names if one.asname)


def _written_rooms() -> dict[str, Path]:
    rooms = ("cli", "engine_sdk_tools", "vdsm_hooks")
    found = {name: path for name, path in SOURCES.items() if _room(name) in rooms}
    entries = (TOP / "vdsm_hooks").glob("*/50_ovirt_rdma")
    return {**found, **{path.parent.name: path for path in entries}}


def test_all_that_is_shown_goes_through_the_screen():
    found = {
        (name, way)
        for name, path in _written_rooms().items()
        if name != SCREEN
        for way in _ways_out(ast.parse(path.read_bytes()))
    }
    assert found - WRITERS == set()
    assert WRITERS - found == set(), "no longer there"
