# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernel modules in a guest."""

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
    """Load modules side by side: each waits on the root file system most of its time.

    Raises CommandFailed with modprobe's words if one cannot be loaded.
    """
    guest.run(["bash", "-c", _LOAD, "modprobe", *names], check=True)


@contextmanager
def hidden(guest: Guest, name: str) -> Iterator[None]:
    """Unload a module and take it away, as on a host that does not have it."""
    file = guest.run(f"modinfo -F filename {name}", check=True).stdout.strip()
    # By hand: depmod reads every module there is, under emulation for 20 s.
    listing = "/lib/modules/$(uname -r)/modules.dep"
    take_away = (
        f"modprobe -r {name} && mv {file} {file}.hidden"
        f" && cp {listing} /run/{name}.dep && sed -i '/^[^:]*{name}.ko/d' {listing}"
    )
    put_back = f"mv {file}.hidden {file} && mv /run/{name}.dep {listing}"
    guest.run(take_away, check=True)
    try:
        yield
    finally:
        guest.run(put_back, check=True)
