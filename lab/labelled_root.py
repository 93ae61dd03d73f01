# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the root disk of a guest that enforces an SELinux policy.

    with Guest("hypervisor", labelled=True) as guest:
        guest.run("ps -eZ")

It has the layer's programs and those that other guests take from the machine, with the
labels of Debian's reference policy. ``OVIRT_RDMA_LAB_SELINUX`` names a folder with
another policy, built elsewhere: its ``etc/selinux/config`` and what that names. It is
made once for each layer and policy, in a minute or two, as root, because only root may
set labels.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from lab.cache import Provision, cache_folder
from lab.layer import GUEST_PACKAGES, SUITES, asked_kernel
from lab.packages import Apt, unpack
from lab.problem import LabProblem

POLICY = "OVIRT_RDMA_LAB_SELINUX"
# What other guests have from the machine, or need only there, and the policy.
PACKAGES = (
    *("base-files", "base-passwd", "bash", "coreutils", "dash", "diffutils"),
    *("findutils", "gawk", "grep", "gzip", "hostname", "kmod", "make", "mount"),
    *("passwd", "policycoreutils", "procps", "sed", "selinux-policy-default"),
    *("selinux-utils", "tar", "util-linux", "xz-utils"),
)
# Bytes; sparse, and never written after it was made.
_SIZE = 4 << 30
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin", "LANG": "C.UTF-8"}
_NUMBERS = re.compile(r" (?:pid|ino)=\d+")
# A path that begins with "/memfd:" (lab/boot/agent.py), as the kernel logs it.
_OUTPUT = f" path={b'/memfd:'.hex().upper()}"
# What the packages' own scripts would do. `semodule` makes the policy and the table of
# labels from the modules that the policy's script installs.
_CONFIGURE = r"""
set -e
cp /usr/share/base-passwd/passwd.master /etc/passwd
cp /usr/share/base-passwd/group.master /etc/group
for link in sh:dash awk:gawk mawk:gawk; do
    [ -e "/usr/bin/${link%:*}" ] || ln -s "${link#*:}" "/usr/bin/${link%:*}"
done
mkdir -p -m 755 /tmp /srv /mnt /proc /sys /dev /run /var/lib/nfs
chmod 1777 /tmp
rm -rf /var/run /var/lock
ln -s /run /var/run
ln -s /run/lock /var/lock
if ! [ -e /etc/selinux/config ]; then
    printf 'SELINUX=enforcing\nSELINUXTYPE=default\n' > /etc/selinux/config
    mkdir -p /var/lib/selinux
    cd /usr/share/selinux/default
    set --
    for module in $(cat .modules); do set -- "$@" -i "$PWD/$module.pp.bz2"; done
    semodule --store default --noreload --priority 100 "$@"
fi
. /etc/selinux/config
mount -t proc proc /proc
exec setfiles -F -e /proc "/etc/selinux/$SELINUXTYPE/contexts/files/file_contexts" /
"""


def labelled_root(
    provision: Provision, environment: Mapping[str, str] = os.environ
) -> Path:
    """Return the image for guests made of ``provision``; make it if necessary.

    Raises LabProblem if that fails, or this process is not root.
    """
    policy = Path(environment[POLICY]) if environment.get(POLICY) else None
    folder = cache_folder() / "labelled"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{_digest(provision, policy)}.img"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in parallel
        if not path.exists():
            if os.geteuid():
                raise LabProblem("a guest with SELinux needs root, to label its files")
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                _make(provision, policy, Path(scratch)).rename(path)
    return path


def _digest(provision: Provision, policy: Optional[Path]) -> str:
    digest = hashlib.sha256("\0".join([provision.key, *PACKAGES, _CONFIGURE]).encode())
    if policy is not None:
        files = sorted(path for path in policy.rglob("*") if path.is_file())
        if not files:
            raise LabProblem(f"{POLICY} is {policy}, which has no policy")
        for file in files:
            digest.update(f"\0{file.relative_to(policy)}\0".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _make(provision: Provision, policy: Optional[Path], scratch: Path) -> Path:
    root, image = scratch / "root", scratch / "image"
    suite = SUITES.get(asked_kernel(), "")
    apt = Apt(cache_folder() / (f"apt-{suite}" if suite else "apt"), suite)
    unpack(apt.download(apt.closure((*GUEST_PACKAGES, *PACKAGES))), root)
    modules = provision.modules.relative_to(provision.layer)
    shutil.copytree(provision.modules, root / modules, symlinks=True)
    if policy is not None:
        shutil.copytree(policy, root, symlinks=True, dirs_exist_ok=True)
    # With mounts of its own: /proc is for setfiles.
    _run("unshare", "-m", "chroot", str(root), "/usr/bin/dash", "-c", _CONFIGURE)
    with image.open("wb") as file:
        file.truncate(_SIZE)
    # -d copies files with their labels.
    _run("mke2fs", "-q", "-F", "-t", "ext4", "-d", str(root), str(image))
    return image


def _run(*command: str) -> None:
    done = subprocess.run(
        command, env=_ENVIRONMENT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise LabProblem(
            f"{command[0]} failed, for a guest with SELinux: {done.stderr.strip()}"
        )


def denials(kernel_log: str) -> list[str]:
    """Return the accesses that the policy has denied or would deny: the lines of the
    audit subsystem in the kernel's log, without times and numbers, each once. Pure.
    Programs of other domains may not write to the files that a command of the lab has
    for its output, which no host has; that is left out.

    Raises LabProblem if the kernel has left out lines (audit_log_lost).
    """
    found: dict[str, None] = {}
    for line in kernel_log.splitlines():
        if "audit_lost=" in line or "printk limit exceeded" in line:
            raise LabProblem(f"the kernel's log is not complete: {line}")
        _, denied, rest = line.partition("avc:  denied ")
        if _OUTPUT in line:
            continue
        if denied or "SELINUX_ERR" in line:
            found[_NUMBERS.sub("", rest or line).strip()] = None
    return list(found)
