# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the guest's initramfs: busybox, the modules for a root over 9p, and lab/boot/.

It is made in Python (the cpio format "newc" has one header per file), once per content.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from lab import systemd_boot
from lab.cache import Provision, cache_folder
from lab.problem import LabProblem

# For the root file system and for the command agent.
BOOT_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_console")
# For a disk; ext4 requests its checksum module by an alias that only modprobe resolves.
DISK_MODULES = ("virtio_blk", "crc32c_generic", "ext4")

_BOOT = Path(__file__).parent / "boot"
_DIRECTORY = 0o040755
_PROGRAM = 0o100755
_FILE = 0o100644


def initramfs(
    provision: Provision,
    *,
    systemd: bool = False,
    disk: bool = False,
    labelled: bool = False,
) -> Path:
    """Return the initramfs for guests made of ``provision``; make it if necessary.

    ``systemd``: the first process is systemd. ``disk``: the guest has /dev/vda, with
    ``labelled`` as its root.
    """
    files = _files(provision, (*BOOT_MODULES, *(DISK_MODULES if disk else ())))
    files.update(systemd_boot.files() if systemd else {})
    files.update({"labelled": b""} if labelled else {})
    content = archive(files)
    digest = hashlib.sha256(content).hexdigest()[:16]
    path = cache_folder() / "initramfs" / digest
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_bytes(content)
        draft.replace(path)
    return path


def _files(provision: Provision, names: Iterable[str]) -> dict[str, bytes]:
    dependencies = (provision.modules / "modules.dep").read_text()
    built_in = (provision.modules / "modules.builtin").read_text()
    modules = load_order(dependencies, names, built_in)
    files = {
        "bin/busybox": (provision.layer / "usr/bin/busybox").read_bytes(),
        "init": (_BOOT / "init").read_bytes(),
        "lab/first-process": (_BOOT / "first-process").read_bytes(),
        "lab/agent.py": (_BOOT / "agent.py").read_bytes(),
        "modules/order": "".join(f"{Path(m).name}\n" for m in modules).encode(),
    }
    for module in modules:
        path = provision.modules / module
        files[f"modules/{path.name}"] = path.read_bytes()
    return files


def load_order(
    modules_dep: str, names: Iterable[str], modules_builtin: str = ""
) -> list[str]:
    """Return the files to insert, in order: ``names`` and their dependencies. Pure.

    The texts are those of modules.dep(5) and modules.builtin, whose modules need no
    file. Raises LabProblem for a module that is in neither.
    """
    built_in = {_name(line) for line in modules_builtin.split()}
    needs: dict[str, list[str]] = {}
    by_name: dict[str, str] = {}
    for line in modules_dep.splitlines():
        file, _, needed = line.partition(":")
        needs[file] = needed.split()
        by_name[_name(file)] = file
    order: list[str] = []

    def add(file: str) -> None:
        for other in needs[file]:
            add(other)
        if file not in order:
            order.append(file)

    for name in names:
        if name in built_in:
            continue
        if name not in by_name:
            raise LabProblem(f"the guest kernel has no module {name}")
        add(by_name[name])
    return order


def _name(file: str) -> str:
    return Path(file).name.partition(".")[0].replace("-", "_")


def archive(files: Mapping[str, bytes]) -> bytes:
    """Return a cpio archive (newc) of ``files`` and their folders. Pure.

    Scripts (``#!``) and programs are executable.
    """
    folders = {
        str(parent)
        for name in files
        for parent in Path(name).parents
        if str(parent) != "."
    }
    entries = [(name, _DIRECTORY, b"") for name in sorted(folders)]
    entries += [(name, _mode(files[name]), files[name]) for name in sorted(files)]
    parts = [
        _entry(number, name, mode, content)
        for number, (name, mode, content) in enumerate(entries, start=1)
    ]
    return b"".join([*parts, _entry(0, "TRAILER!!!", 0, b"")])


def _mode(content: bytes) -> int:
    return _PROGRAM if content.startswith((b"#!", b"\x7fELF")) else _FILE


def _entry(inode: int, name: str, mode: int, content: bytes) -> bytes:
    """Return a member (Documentation/driver-api/early-userspace/buffer-format.rst)."""
    path = name.encode() + b"\0"
    fields = (inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(path), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    return _padded(header + path) + _padded(content)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
