# SPDX-License-Identifier: GPL-2.0-or-later
"""A hypervisor's SSH door on this machine: a real sshd on 127.0.0.1, with a host key of
its own, whose sessions see a /etc, /var/lib and /run of their own.

Its package is unpacked into the cache, not installed: that would start a daemon for
all the world on the machine of someone who runs tests. Needs root, for its namespace.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.cache import cache_folder
from lab.packages import Apt, unpack
from lab.problem import LabProblem

# sshd, and the one library of it that a machine with ssh may lack.
_PACKAGES = ("openssh-server", "libwrap0")
_START_S = 20.0

_CONFIGURATION = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host-key
AuthorizedKeysFile {folder}/authorized
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
SetEnv PATH={path}
"""
# $1: a folder for what the sessions see; then sshd and its words. /etc is a copy.
_NAMESPACE = """\
set -e
mount -t tmpfs -o mode=755 lab "$1"
mkdir "$1/etc" "$1/lib" "$1/run" "$1/run/sshd"
cp -a /etc/. "$1/etc/"
rm -rf "$1/etc/ovirt-rdma"
grep -q ^sshd: "$1/etc/passwd" ||
    echo sshd:x:74:65534:sshd:/run/sshd:/usr/sbin/nologin >>"$1/etc/passwd"
mount --bind "$1/etc" /etc
mount --bind "$1/lib" /var/lib
mount --bind "$1/run" /run
shift
exec "$@"
"""


@dataclass(frozen=True)
class Sshd:
    """A running sshd: its port, its public host key, and its sessions' root."""

    port: int
    host_key: str
    root: Path


def fetched() -> Path:
    """Return a folder with sshd's package, unpacked; it is fetched once.

    Raises LabProblem where apt cannot fetch it.
    """
    folder = cache_folder()
    apt = Apt(folder / "apt")
    try:
        wanted = {name: apt.version(name) for name in _PACKAGES}
        debs = apt.download(wanted)
    except (LabProblem, StopIteration):
        apt.use_own_lists()
        wanted = {name: apt.version(name) for name in _PACKAGES}
        debs = apt.download(wanted)
    there = folder / f"sshd-{wanted['openssh-server'].replace(':', '-')}"
    if not there.is_dir():
        made = folder / f".{there.name}.{os.getpid()}"
        shutil.rmtree(made, ignore_errors=True)
        unpack(debs, made)
        try:
            made.rename(there)
        except OSError:  # another run was quicker
            shutil.rmtree(made)
    return there


@contextmanager
def running(
    package: Path, folder: Path, authorized: str, search_path: str
) -> Iterator[Sshd]:
    """Run the sshd of ``package`` until the block ends; its files are in ``folder``.

    It lets root in by the public key ``authorized``; sessions have ``search_path``.
    Raises LabProblem where it does not start.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    folder.mkdir()
    _keygen(folder / "host-key")
    (folder / "authorized").write_text(authorized)
    (folder / "sees").mkdir()
    configuration = folder / "sshd_config"
    configuration.write_text(
        _CONFIGURATION.format(port=port, folder=folder, path=search_path)
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                *("unshare", "--mount", "sh", "-c", _NAMESPACE, "sh"),
                *(str(folder / "sees"), str(package / "usr/sbin/sshd")),
                *("-D", "-e", "-f", str(configuration)),
            ],
            env={
                "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                "LD_LIBRARY_PATH": str(package / "usr/lib/x86_64-linux-gnu"),
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        _wait_for(process, port, folder / "log")
        key = (folder / "host-key.pub").read_text()
        yield Sshd(port, key, Path(f"/proc/{process.pid}/root"))
    finally:
        process.terminate()
        process.wait()


def key_pair(folder: Path) -> tuple[Path, str]:
    """Make a key for logging in; return its file and its public text."""
    _keygen(folder / "user-key")
    return folder / "user-key", (folder / "user-key.pub").read_text()


def _keygen(path: Path) -> None:
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)


def _wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < until:
        try:
            with socket.create_connection(("127.0.0.1", port), 1):
                return
        except OSError:
            time.sleep(0.05)
    words = log.read_text(errors="replace").strip() or "no words"
    raise LabProblem(f"sshd does not run: {words}")
