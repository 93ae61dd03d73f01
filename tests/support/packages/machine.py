# SPDX-License-Identifier: GPL-2.0-or-later
"""Run rpm, with the scripts of packages, on a machine of its own.

The machine is this one's file system with an overlay, in a mount namespace: whatever
rpm and its scripts write is in the overlay, and everything else is seen. Its
/usr/bin/python3 stands in for EL's: it finds what the packages install, and PyYAML.
systemd is not running, as while an image is made.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Optional

import pytest

from lab import systemd_unit

_VDSM_HOST = Path(systemd_unit.__file__).parent / "vdsm_host"
DATABASE = "/rpmdb"
# Each call of systemctl is a line of this file.
CALLS = "/calls"
# What EL9 has, and Debian may lack.
_FOLDERS_OF_EL = (
    "usr/lib/python3.9/site-packages",
    "usr/lib/systemd/system-preset",
    "usr/lib/systemd/system/multi-user.target.wants",
    "usr/lib/systemd/system/timers.target.wants",
    "usr/lib/tmpfiles.d",
    "usr/lib/udev/rules.d",
    "usr/share/ansible/collections/ansible_collections",
    "usr/share/bash-completion/completions",
    "usr/share/licenses",
    *(f"usr/share/man/man{number}" for number in (5, 7, 8)),
)
# rpm writes scripts to /var/tmp.
_OWN = (DATABASE, CALLS, "/packages", "/byte-code", "/var/tmp")

_MOUNT = """
set -e
mount --make-rprivate /
mount -t tmpfs -o size=200m tmpfs "$1"
mkdir "$1/base" "$1/up" "$1/work" "$1/machine"
cp -a "$4/." "$1/base"
mount -t overlay overlay \
  -o "lowerdir=$1/base:/,upperdir=$1/up,workdir=$1/work" "$1/machine"
for folder in "$2" "$3"; do
  mkdir -p "$1/machine$folder"
  mount --bind "$folder" "$1/machine$folder"
done
mount --rbind /dev "$1/machine/dev"
mount -t proc proc "$1/machine/proc" || mount --rbind /proc "$1/machine/proc"
mount -t tmpfs -o mode=755 tmpfs "$1/machine/run"
mkdir "$1/machine/byte-code"
mount --bind "$5" "$1/machine/byte-code"
# What this machine has of ovirt-rdma is none of the test's.
rm -rf "$1"/machine/etc/ovirt-rdma "$1"/machine/var/lib/ovirt-rdma
echo ready
exec cat >/dev/null
"""
# systemd 252, src/rpm/systemd-update-helper.in: what it does for system units.
_HELPER = """#!/bin/sh
verb=$1; shift
case $verb in
  remove-system-units) systemctl --no-reload disable "$@" ;;
esac
"""
_SYSTEMCTL = f"""#!/bin/sh
echo "$@" >>{CALLS}
exec /usr/bin/systemctl.real "$@"
"""
_PYTHON = """#!/bin/sh
export PYTHONPYCACHEPREFIX=/byte-code PYTHONPATH=/usr/lib/python3.9/site-packages:{site}
exec {python} "$@"
"""
# The words of VDSM's unit and of our drop-in; lab/vdsm_host has one that does more.
_ADAPTER = """#!/bin/sh
while :; do case $1 in
  -1) output=$2; shift 2 ;;
  -[02]) shift 2 ;;
  *) exec "$@" >"$output" ;;
esac; done
"""
_VDSMD = "#!/bin/sh\necho stock vdsmd\n"


class Machine:
    """A machine; ``vdsm``: VDSM is installed on it. Closed by :meth:`close`."""

    def __init__(
        self, folder: Path, packages: Iterable[Path], *, vdsm: bool = True
    ) -> None:
        if os.geteuid() != 0:
            pytest.skip("only root can mount what rpm writes to")
        self.folder = folder
        base = folder.with_name(f"{folder.name}.base")
        self._fill(base, packages, vdsm)
        folder.mkdir()
        # Shared: the modules of all machines are the same, or of another time.
        byte_code = folder.parents[1] / "byte-code"
        byte_code.mkdir(exist_ok=True)
        purelib = sysconfig.get_paths()["purelib"]
        folders = [folder, sys.base_prefix, purelib, base, byte_code]
        self._process = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", _MOUNT, "sh", *map(str, folders)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout
        assert self._process.stdout.readline() == "ready\n"
        shutil.rmtree(base)
        self.run("mkdir", DATABASE)
        self.run("touch", CALLS)

    def _fill(self, base: Path, packages: Iterable[Path], vdsm: bool) -> None:
        purelib = sysconfig.get_paths()["purelib"]
        python = Path(sys.base_prefix, "bin", f"python3.{sys.version_info[1]}")
        programs = {
            "usr/bin/python3": _PYTHON.format(site=purelib, python=python),
            "usr/bin/systemctl": _SYSTEMCTL,
            "usr/lib/systemd/systemd-update-helper": _HELPER,
        }
        if vdsm:
            programs["usr/libexec/vdsm/vdsmd"] = _VDSMD
            programs["usr/libexec/vdsm/daemonAdapter"] = _ADAPTER
        for name, text in programs.items():
            path = base / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        shutil.copy("/usr/bin/systemctl", base / "usr/bin/systemctl.real")
        (base / "etc").mkdir()
        for name, line in (
            ("passwd", "vdsm:x:36:36::/:/sbin/nologin\n"),
            ("group", "kvm:x:36:\n"),
        ):
            others = [
                one
                for one in Path("/etc", name).read_text().splitlines(keepends=True)
                if not one.startswith(("vdsm:", "kvm:"))
            ]
            (base / "etc" / name).write_text("".join([*others, line if vdsm else ""]))
        for name in _FOLDERS_OF_EL:
            (base / name).mkdir(parents=True, exist_ok=True)
        (base / "packages").mkdir()
        for package in packages:
            shutil.copy(package, base / "packages")
        subprocess.run(["chown", "-R", "0:0", str(base)], check=True)
        self._folders = {
            f"/{path.relative_to(base)}" for path in base.rglob("*") if path.is_dir()
        }

    def command(self, *words: str) -> list[str]:
        """Return the command that runs ``words`` on the machine."""
        enter = ["nsenter", "-t", str(self._process.pid), "-m"]
        return [*enter, "chroot", str(self.folder / "machine"), *words]

    def run(
        self, *words: str, input: str = "", check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a program on the machine; its stderr is in stdout."""
        done = subprocess.run(
            self.command(*words),
            input=input,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
        )
        assert done.returncode == 0 or not check, done.stdout
        return done

    def rpm(self, *words: str, check: bool = True) -> str:
        """Run rpm with ``words``; return its output, without Debian's advice."""
        done = self.run("rpm", "--dbpath", DATABASE, *words, check=check)
        lines = done.stdout.splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith("rpm: "))

    def install(
        self, *packages: Path, words: Iterable[str] = (), check: bool = True
    ) -> str:
        """Install or upgrade ``packages`` in one transaction; return rpm's output."""
        names = [f"/packages/{package.name}" for package in packages]
        return self.rpm("-U", "--nodeps", *words, *names, check=check)

    def path(self, path: str) -> Path:
        """Return where a file of the machine can be read and written from here."""
        return Path(f"/proc/{self._process.pid}/root{self.folder}/machine{path}")

    def shell(self, script: str, *, check: bool = True) -> str:
        """Run a shell script on the machine; return its output."""
        return self.run("sh", "-c", script, check=check).stdout

    def tree(self) -> dict[str, str]:
        """Return what the machine has written: what each path is, by path.

        A path that was removed is "removed". /run is there too. Folders that were there
        before are not: the overlay copies them with each file.
        """
        found: dict[str, str] = {}
        for top, below in (("up", ""), ("machine/run", "/run")):
            start = Path(f"/proc/{self._process.pid}/root{self.folder}/{top}")
            for folder, folders, names in os.walk(start):
                for name in (*folders, *names):
                    path = Path(folder, name)
                    shown = f"{below}/{path.relative_to(start)}"
                    before = shown in self._folders or Path(shown).is_dir()
                    before = before and "ovirt-rdma" not in shown
                    known = top == "up" and path.is_dir() and before
                    if not known and not shown.startswith(_OWN):
                        found[shown] = _described(path)
        return found

    def calls(self) -> list[str]:
        """Return the calls of systemctl since the last time."""
        lines = self.path(CALLS).read_text().splitlines()
        self.path(CALLS).write_text("")
        return lines

    def start_vdsmd(self) -> str:
        """Run what systemd runs for vdsmd.service; return the output."""
        dropin = self.path("/etc/systemd/system/vdsmd.service.d/50-ovirt-rdma.conf")
        texts = [(_VDSM_HOST / "vdsmd.service").read_text()]
        if dropin.is_symlink():
            target = self.path(str(dropin.readlink()))
            # systemd ignores a link that leads nowhere.
            if target.is_file():
                texts.append(target.read_text())
        words = systemd_unit.exec_start(texts)
        words[words.index("-1") + 1] = "/dev/stdout"
        return self.run(*words).stdout

    def close(self) -> None:
        """End the machine; nothing of it is left."""
        self._process.communicate()


def _described(path: Path) -> str:
    status = path.lstat()
    owner = f"{status.st_mode:o} {status.st_uid}:{status.st_gid}"
    if path.is_symlink():
        return f"{owner} -> {path.readlink()}"
    if path.is_file():
        return f"{owner} {hashlib.sha256(path.read_bytes()).hexdigest()}"
    if path.is_char_device() and status.st_rdev == 0:
        return "removed"
    return owner


def differences(
    before: dict[str, str], after: dict[str, str]
) -> dict[str, tuple[Optional[str], Optional[str]]]:
    """Return the paths that differ, each with what it was and what it is."""
    return {
        path: (before.get(path), after.get(path))
        for path in sorted({*before, *after})
        if before.get(path) != after.get(path)
    }
