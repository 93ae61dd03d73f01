# SPDX-License-Identifier: GPL-2.0-or-later
"""``python3 -m lab.provision``: fetch once the files that guests are made of.

QEMU, and the compiler for the InfiniBand fabric's kernel module, are installed on the
machine (tools/install-debian-packages); everything else is downloaded into the cache
folder and unpacked there, as one layer for guests. A second run finds the layer and
does nothing. Layers of other checkouts stay, because their guests may be running.
"""

from __future__ import annotations

import fcntl
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab import cache
from lab.kernel_image import unpacked
from lab.layer import GUEST_PACKAGES, KERNELS, SUITES, asked_kernel
from lab.layer_program import run_from
from lab.packages import Apt, unpack
from lab.problem import LabProblem, NotProvisioned

HOST_PACKAGES = (
    "qemu-system-x86",
    "gcc",  # of the kernel's release, so the compiler that built the kernel
    "libelf1",  # for objtool of the kernel's own build
    "make",
    "openssh-client",  # tests/lab/test_engine_ansible_lab.py
    "zstd",  # unpacks kernel 6.12
)
# Megabytes of a layer, with its downloads.
ROOM = 1100

_REPOSITORY = Path(__file__).resolve().parent.parent


def main() -> int:
    """Provision this machine for the lab; the exit code is 0 or 1."""
    try:
        provision()
    except LabProblem as problem:
        print(f"lab: {problem}", file=sys.stderr)
        return 1
    return 0


def provision() -> cache.Provision:
    """Fetch everything that guests need, if it is missing, and return where it is.

    Raises LabProblem with what is missing if that is not possible.
    """
    if platform.machine() != "x86_64":
        raise LabProblem(
            f"the lab runs on x86_64 machines, this is {platform.machine()}"
        )
    installer = _REPOSITORY / "tools/install-debian-packages"
    purpose = "the lab's virtual machines"
    if subprocess.run(
        [str(installer), "--for", purpose, *HOST_PACKAGES], check=False
    ).returncode:
        raise LabProblem(
            "guests need QEMU, and a compiler for a module of their kernel"
        )
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise LabProblem(
            "guests are made of Debian packages, and this machine has no apt-get and"
            " dpkg-deb; run the lab on Debian 12"
        )
    folder = cache.cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(folder / "lock"):
            try:
                return cache.provisioned()
            except NotProvisioned:
                made = make_layer(folder, cache.wanted_key())
                cache.record(made)
                return made
    except OSError as error:
        raise LabProblem(
            f"the lab's downloads cannot be kept in {folder} ({error}); set"
            " OVIRT_RDMA_CACHE to another folder"
        ) from None


def make_layer(folder: Path, key: str) -> cache.Provision:
    """Fetch a layer into ``folder`` and unpack it there, with the kernel that
    ``OVIRT_RDMA_LAB_KERNEL`` asks for. Nothing is recorded. Raises LabProblem.
    """
    free = shutil.disk_usage(folder).free >> 20
    if free < ROOM:
        raise LabProblem(
            f"guests need {ROOM} MB in {folder}, and {free} MB are free; make room, or"
            " set OVIRT_RDMA_CACHE to another folder"
        )
    print(
        "Fetching a kernel, an NFS server and RDMA user space for the lab's guests"
        f" into {folder} (installed nowhere)",
        flush=True,
    )
    apt = Apt(folder / "apt")
    try:
        image, debs = _download(apt)
    except LabProblem:
        # The machine's package lists are missing, or name packages that the archive no
        # longer has: try once more with new lists.
        apt.use_own_lists()
        image, debs = _download(apt)
    layer = folder / f"layer-{key}"
    shutil.rmtree(layer, ignore_errors=True)
    unpack(debs, layer)
    run = layer / "var/run"
    if run.is_dir():  # a package's; base-files makes a link after it is unpacked
        run.rmdir()
        run.symlink_to("/run")
    release = _release(image)
    run_from(layer, "usr/bin/kmod", "depmod", "-b", str(layer), release)
    # If a guest must compile the agent's imports, its boot takes 2 s longer.
    names = ("-s", str(layer), "-p", "/")  # as guests see them, for tracebacks
    compiling = ("-m", "compileall", "-q", *names, str(layer))
    run_from(layer, "usr/bin/python3", "python3", *compiling)
    packed = layer / f"boot/vmlinuz-{release}"
    kernel = layer / f"boot/vmlinux-{release}"
    content = unpacked(packed.read_bytes())
    if content is None:
        kernel = packed
    else:
        kernel.write_bytes(content)
    return cache.Provision(key, layer, kernel, release)


def _download(apt: Apt) -> tuple[str, list[Path]]:
    kernel = asked_kernel()
    image = apt.kernel_image(KERNELS[kernel])
    # Without their dependencies: tools for an initramfs, which the lab makes itself,
    # and a compiler, of which the machine's is used.
    names = (image, *apt.kernel_headers(_release(image)))
    debs = apt.download({name: apt.version(name) for name in names})
    suite = SUITES.get(kernel, "")
    others = Apt(apt.folder.with_name(f"apt-{suite}"), suite) if suite else apt
    return image, debs + others.download(others.closure(GUEST_PACKAGES))


def _release(image: str) -> str:
    return image[len("linux-image-") :]


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Let a second run wait until the first has finished."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(main())
