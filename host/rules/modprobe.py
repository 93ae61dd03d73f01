# SPDX-License-Identifier: GPL-2.0-or-later
"""Questions about modules that several rules ask: is it loaded, is it there, what keeps
it from being loaded, what loads it at boot, from which tree is its file. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional, Union

from ovirt_rdma.host.facts import LoadLine, ModprobeLine, Modules
from ovirt_rdma.host.module_names import module_name

# rdma-core's lists, /etc/rdma/modules/NAME.conf (kernel-boot/modules in rdma-core).
RDMA_LISTS = "/etc/rdma/modules/"
_DOES_NOTHING = ("true", "false", ":")


def is_loaded(modules: Modules, name: str) -> bool:
    """Whether the module is loaded or built in."""
    return module_name(name) in modules.loaded


def is_available(modules: Modules, name: str) -> Optional[bool]:
    """Whether the running kernel has the module; None where that cannot be told."""
    if is_loaded(modules, name):
        return True
    if modules.available is None:
        return None
    return module_name(name) in modules.available


def blocking_line(modules: Modules, name: str) -> Optional[ModprobeLine]:
    """Return the modprobe.d(5) line that keeps udev and modules-load from loading a
    module: ``blacklist``, or an ``install`` command that does nothing.
    """
    for line in modules.modprobe_lines:
        if module_name(line.module) != module_name(name):
            continue
        if line.command == "blacklist" or _installs_nothing(line):
            return line
    return None


def _installs_nothing(line: ModprobeLine) -> bool:
    words = line.text.split()
    return (
        line.command == "install"
        and bool(words)
        and words[0].rpartition("/")[2] in _DOES_NOTHING
    )


def place_of(line: Union[ModprobeLine, LoadLine]) -> str:
    """Return ``FILE:LINE``."""
    return f"{line.file}:{line.line}"


def load_lines(modules: Modules, name: str) -> Iterator[LoadLine]:
    """Yield the lines that name a module, of whatever spelling."""
    for line in modules.load_lines:
        if module_name(line.module) == module_name(name):
            yield line


def loaded_at_boot_by(modules: Modules, name: str) -> Optional[LoadLine]:
    """Return the modules-load.d(5) line that loads a module at every boot.

    rdma-core's lists, which depend on the hardware, are not meant.
    """
    for line in load_lines(modules, name):
        if not line.file.startswith(RDMA_LISTS):
            return line
    return None


def file_of(modules: Modules, name: str) -> Optional[str]:
    """Return the module's file below /lib/modules/RELEASE, or None: not known."""
    wanted = module_name(name)
    return next((f.path for f in modules.files if module_name(f.name) == wanted), None)


def is_of_the_kernel(path: str) -> bool:
    """Whether a module's file is the kernel's own, not ``extra/`` or ``updates/``."""
    return path.startswith("kernel/")
