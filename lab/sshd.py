# SPDX-License-Identifier: GPL-2.0-or-later
"""Run a real sshd on 127.0.0.1 that stands for a hypervisor's.

It has its own host key, and its sessions see their own /etc, /var/lib and /run. Its
package is unpacked into the cache and not installed, which would start a public daemon
on the machine that runs the tests. The namespace needs root.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab import packages
from lab.cache import cache_folder
from lab.problem import LabProblem

# sshd, and its one library that a machine with ssh may lack.
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
# $1 is a folder for the files that sessions see; then sshd and its arguments. /etc is a
# copy.
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
    """A running sshd: its port, its public host key, and the root of its sessions."""

    port: int
    host_key: str
    root: Path


def fetched() -> Path:
    """Return a folder with the unpacked package of sshd, which is fetched once.

    Raises LabProblem if apt cannot fetch it.
    """
    return packages.fetched(cache_folder(), *_PACKAGES)


@contextmanager
def running(
    package: Path, folder: Path, authorized: str, search_path: str
) -> Iterator[Sshd]:
    """Run the sshd of ``package`` until the block ends; its files are in ``folder``.

    root can log in with the public key ``authorized``; PATH of the sessions is
    ``search_path``. Raises LabProblem if it does not start.
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
    """Make a key for the login; return its file and its public text."""
    _keygen(folder / "user-key")
    return folder / "user-key", (folder / "user-key.pub").read_text()


def _keygen(path: Path) -> None:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def _wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < until:
        try:
            with socket.create_connection(("127.0.0.1", port), 1):
                return
        except OSError:
            time.sleep(0.05)
    output = log.read_text(errors="replace").strip() or "no output"
    raise LabProblem(f"sshd is not running: {output}")
