# SPDX-License-Identifier: GPL-2.0-or-later
"""Load and hide kernel modules in a guest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lab.guest import Guest

_LOAD = """
for name in "$@"; do
    [ -e "/sys/module/$name" ] || { modprobe "$name" & jobs+=($!); }
done
for job in "${jobs[@]}"; do wait "$job" || failed=1; done
exit ${failed:-0}
"""


def load(guest: Guest, *names: str) -> None:
    """Load modules in parallel: each mostly waits for the root file system.

    Raises CommandFailed with modprobe's output if one cannot be loaded.
    """
    guest.run(["bash", "-c", _LOAD, "modprobe", *names], check=True)


# Edits modules.dep itself: depmod reads every module, which takes 20 s under emulation.
_HIDE = """
file=$(modinfo -F filename "$1")
listing=/lib/modules/$(uname -r)/modules.dep
modprobe -r "$1"
mv "$file" "$file.hidden"
echo "$file" > "/run/$1.hidden"
cp "$listing" "/run/$1.dep"
sed -i "/^[^:]*$1.ko/d" "$listing"
"""
_UNHIDE = """
file=$(cat "/run/$1.hidden")
mv "$file.hidden" "$file"
mv "/run/$1.dep" "/lib/modules/$(uname -r)/modules.dep"
"""


def hide(guest: Guest, name: str) -> None:
    """Unload an idle module and hide it, as on a host that does not have it."""
    guest.run(["bash", "-ec", _HIDE, "hide", name], check=True)


def unhide(guest: Guest, name: str) -> None:
    """Restore a hidden module; it loads when it is needed."""
    guest.run(["bash", "-ec", _UNHIDE, "unhide", name], check=True)


@contextmanager
def hidden(guest: Guest, name: str) -> Iterator[None]:
    """Hide a module for as long as the context lasts."""
    hide(guest, name)
    try:
        yield
    finally:
        unhide(guest, name)
