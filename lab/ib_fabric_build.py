# SPDX-License-Identifier: GPL-2.0-or-later
"""Build kernel modules of the lab (lab/ib_fabric/, lab/rxe_carrier/), once per content.

It is built on the machine, because a compiler is some ten times slower in a guest. The
kernel headers are those of the guest layer; they need not be installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Optional

from lab.cache import Provision, cache_folder, provisioned
from lab.problem import LabProblem

NAME = "ib_fabric"
SOURCES = Path(__file__).with_name("ib_fabric")
# Without debug symbols, because the module is copied to each guest.
_SETTINGS = ("CC=gcc", "CONFIG_DEBUG_INFO_BTF_MODULES=", "KCFLAGS=-g0")
_OF_ANOTHER_MAKE = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")


def built_module(sources: Optional[Path] = None) -> Path:
    """Return the module for this checkout's guests; build it if necessary. ``sources``
    is its folder, with its name; None: the fabric's.

    Raises NotProvisioned without a guest layer, and LabProblem with the compiler's
    output if it cannot be built.
    """
    provision, sources = provisioned(), sources or SOURCES
    folder = cache_folder() / sources.name
    path = folder / f"{_digest(provision, sources)}.ko"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in parallel
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                module, _ = build(provision, Path(scratch) / "source", sources=sources)
                module.rename(path)
    return path


def build(
    provision: Provision, folder: Path, *settings: str, sources: Optional[Path] = None
) -> tuple[Path, str]:
    """Build in the new ``folder``; return the module and the compiler's output.

    ``settings`` are for kbuild: ``W=1``. Raises LabProblem with the output.
    """
    sources = sources or SOURCES
    shutil.copytree(sources, folder)
    name = f"{sources.name}.ko"
    output = make_modules(provision, folder, name, *_SETTINGS, *settings)
    return folder / name, output


def make_modules(provision: Provision, folder: Path, name: str, *settings: str) -> str:
    """Build the modules in ``folder`` for the kernel of ``provision``; return the
    compiler's output. Raises LabProblem with ``name`` and the output.
    """
    headers = provision.layer / f"usr/src/linux-headers-{provision.kernel_release}"
    common = Path(f"{headers.as_posix().removesuffix('-amd64')}-common")
    # The Makefile of the headers includes that of -common by its installed path. With
    # the path given here, kbuild finds everything else relative to the two.
    command = ["make", "--silent", f"-j{os.cpu_count()}", "-C", str(headers)]
    command += ["-f", str(common / "Makefile")]
    # Without the options of a make that runs this, such as `make -j2 check`.
    environment = {k: v for k, v in os.environ.items() if k not in _OF_ANOTHER_MAKE}
    try:
        done = subprocess.run(
            [*command, f"M={folder}", *settings, "modules"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    except OSError as error:
        raise LabProblem(f"{name} needs make to be built: {error}") from None
    if done.returncode:
        raise LabProblem(f"{name} cannot be built:\n{done.stdout.strip()}")
    return done.stdout


def _digest(provision: Provision, sources: Path) -> str:
    digest = hashlib.sha256(
        "\0".join([provision.key, provision.kernel_release, *_SETTINGS]).encode()
    )
    for source in sorted(sources.iterdir()):
        digest.update(f"\0{source.name}\0".encode() + source.read_bytes())
    return digest.hexdigest()[:16]
