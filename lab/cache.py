# SPDX-License-Identifier: GPL-2.0-or-later
"""Find the lab's downloads, and record which of them are ready for use.

The folder is ``$OVIRT_RDMA_CACHE``, else ``$XDG_CACHE_HOME/ovirt-rdma``, else
``~/.cache/ovirt-rdma``. It is outside the checkout, so that ``make clean`` and a second
clone need no second download. Each kernel, and each checkout with other packages, has
its own layer and record there.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from lab.layer import (
    GUEST_PACKAGES,
    KERNELS,
    SUITES,
    asked_kernel,
    debian_release,
    layer_key,
)
from lab.problem import NotProvisioned


@dataclass(frozen=True)
class Provision:
    """The files that guests are made of.

    ``key`` identifies the Debian release, the kernel and the package list; ``layer`` is
    the folder that guests see over the machine's root file system; ``kernel`` is the
    image that QEMU starts, ``kernel_release`` its ``uname -r``.
    """

    key: str
    layer: Path
    kernel: Path
    kernel_release: str

    @property
    def modules(self) -> Path:
        """The kernel's modules, with modules.dep."""
        return self.layer / "usr/lib/modules" / self.kernel_release


def cache_folder() -> Path:
    """Return the cache folder, absolute; it need not exist.

    Raises NotProvisioned if neither a setting nor a home folder says where it is.
    """
    own = os.environ.get("OVIRT_RDMA_CACHE")
    if own:
        return Path(own).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "ovirt-rdma"
    except (RuntimeError, KeyError):  # KeyError: Python 3.9
        raise NotProvisioned(
            f"user {os.getuid()} has no home folder, and HOME is not set: set"
            " OVIRT_RDMA_CACHE to a folder for the lab's downloads"
        ) from None


def wanted_key() -> str:
    """Return the key of the layer that this checkout's guests are made of.

    Raises LabProblem if ``OVIRT_RDMA_LAB_KERNEL`` asks for a kernel that is none.
    """
    kernel = asked_kernel()
    suite = SUITES.get(kernel, debian_release())
    return layer_key(suite, KERNELS[kernel], GUEST_PACKAGES)


def record_of(key: str) -> Path:
    """Return the file that exists if layer ``key`` is ready for use."""
    return cache_folder() / f"provisioned-{key}.json"


def provisioned() -> Provision:
    """Return the files that this checkout's guests are made of.

    Raises NotProvisioned if they are not ready for use.
    """
    record = record_of(wanted_key())
    try:
        fields = json.loads(record.read_text())
        provision = Provision(
            key=fields["key"],
            layer=Path(fields["layer"]),
            kernel=Path(fields["kernel"]),
            kernel_release=fields["kernel_release"],
        )
        complete = provision.kernel.is_file() and provision.modules.is_dir()
    except FileNotFoundError:
        raise NotProvisioned(f"no {record}; run: python3 -m lab.provision") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotProvisioned(
            f"{record} cannot be used ({error}); run: python3 -m lab.provision"
        ) from None
    if not complete:
        raise NotProvisioned(
            f"{provision.layer} is not complete; run: python3 -m lab.provision"
        )
    return provision


def record(provision: Provision) -> None:
    """Record that ``provision`` is ready for use."""
    path = record_of(provision.key)
    fields = {name: str(value) for name, value in asdict(provision).items()}
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(fields, indent=2) + "\n")
    draft.replace(path)
