# SPDX-License-Identifier: GPL-2.0-or-later
"""Find and fetch Debian packages for guests with apt, and unpack them.

They are never installed: the packages that guests need beside the machine's own files
(an NFS server, RDMA user space, a kernel) would start daemons and add a kernel to
/boot. apt runs as if nothing were installed, so that its list is complete and does not
depend on the machine.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Optional

from lab.problem import LabProblem

# `Inst NAME [OLD] (VERSION ARCHIVE... [ARCH]) [...]`, apt-get(8) --simulate.
_INST = re.compile(r"^Inst (\S+) (?:\[\S+\] )?\((\S+) ", re.MULTILINE)
_IMAGE = re.compile(r"\blinux-image-\d\S*")
_HEADERS = re.compile(r"\blinux-(?:headers|kbuild)-\d[^\s,]*")
# Debian's folder links since the merged /usr; packages of Debian 12 still have files
# under both names.
_MERGED = ("bin", "sbin", "lib", "lib64")
_SOURCES = (
    "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
    " http://deb.debian.org/debian {suite} main\n"
)


class Apt:
    """apt's view of the archive, without root and without the machine's state.

    ``folder`` has the downloads and separate lists: of ``suite``, a release of Debian,
    or of the machine's own sources if its lists are missing or out of date.
    """

    def __init__(self, folder: Path, suite: str = "") -> None:
        self.folder = folder
        self.archives = folder / "archives"
        self._lists = folder / "lists"
        self._status = folder / "status"
        self._sources = folder / "sources.list"
        self._own_lists = bool(suite)
        (self.archives / "partial").mkdir(parents=True, exist_ok=True)
        self._status.write_text("")
        if suite:
            self._sources.write_text(_SOURCES.format(suite=suite))
            self.use_own_lists()

    def closure(self, names: Sequence[str]) -> dict[str, str]:
        """Return ``{name: version}`` of ``names`` and all their dependencies."""
        answer = self._run(
            "apt-get", "install", "--simulate", "--no-install-recommends", *names
        )
        return parse_simulation(answer)

    def kernel_image(self, metapackage: str) -> str:
        """Return the name of the image package that ``metapackage`` depends on now."""
        answer = self._run("apt-cache", "show", "--no-all-versions", metapackage)
        return parse_kernel_image(answer, metapackage)

    def kernel_headers(self, release: str) -> list[str]:
        """Return the packages that modules for kernel ``release`` are built with."""
        name = f"linux-headers-{release}"
        answer = self._run("apt-cache", "show", "--no-all-versions", name)
        return [name, *parse_kernel_headers(answer)]

    def download(self, wanted: dict[str, str]) -> list[Path]:
        """Fetch the missing packages; return the .deb files of all."""
        absent = [
            f"{name}={version}"
            for name, version in wanted.items()
            if self._deb(name, version) is None
        ]
        if absent:
            self._run("apt-get", "download", "--quiet=2", *absent, cwd=self.archives)
        debs = {name: self._deb(name, version) for name, version in wanted.items()}
        for name, deb in debs.items():
            if deb is None:
                raise LabProblem(f"apt-get download left no file for {name}")
        return [deb for deb in debs.values() if deb is not None]

    def version(self, name: str) -> str:
        """Return the version of ``name`` that apt would install."""
        answer = self._run("apt-cache", "show", "--no-all-versions", name)
        return next(
            line.split()[1]
            for line in answer.splitlines()
            if line.startswith("Version:")
        )

    def use_own_lists(self) -> None:
        """Fetch separate package lists (once) and use those from now on."""
        self._own_lists = True
        (self._lists / "partial").mkdir(parents=True, exist_ok=True)
        self._run("apt-get", "update", "--quiet=2")

    def _deb(self, name: str, version: str) -> Optional[Path]:
        # apt writes an epoch's colon as %3a.
        pattern = f"{name}_{version.replace(':', '%3a')}_*.deb"
        return next(iter(sorted(self.archives.glob(pattern))), None)

    def _run(self, *command: str, cwd: Optional[Path] = None) -> str:
        settings = [
            f"Dir::State::status={self._status}",
            f"Dir::Cache::archives={self.archives}",
            "Debug::NoLocking=1",
            # apt's own user cannot write to our cache.
            "APT::Sandbox::User=",
        ]
        if self._sources.exists():
            settings.append(f"Dir::Etc::sourcelist={self._sources}")
            settings.append("Dir::Etc::sourceparts=/dev/null")
        if self._own_lists:
            settings.append(f"Dir::State::lists={self._lists}")
        options = [option for setting in settings for option in ("-o", setting)]
        done = subprocess.run(
            [command[0], *options, *command[1:]],
            capture_output=True,
            text=True,
            check=False,
            cwd=cwd,
        )
        if done.returncode:
            output = done.stderr.strip() or done.stdout.strip()
            raise LabProblem(f"{' '.join(command[:2])} failed: {output}")
        return done.stdout


def fetched(folder: Path, *names: str) -> Path:
    """Return a folder below the cache ``folder`` with these packages, unpacked. They
    are fetched once. Raises LabProblem if apt cannot fetch them.
    """
    apt = Apt(folder / "apt")
    try:
        wanted = {name: apt.version(name) for name in names}
        debs = apt.download(wanted)
    except (LabProblem, StopIteration):
        apt.use_own_lists()
        wanted = {name: apt.version(name) for name in names}
        debs = apt.download(wanted)
    package = folder / f"{'+'.join(names)}-{wanted[names[0]].replace(':', '-')}"
    if not package.is_dir():
        draft = folder / f".{package.name}.{os.getpid()}"
        shutil.rmtree(draft, ignore_errors=True)
        unpack(debs, draft)
        try:
            draft.rename(package)
        except OSError:  # another run was faster
            shutil.rmtree(draft)
    return package


def parse_simulation(text: str) -> dict[str, str]:
    """Return ``{name: version}`` from the output of ``apt-get --simulate install``."""
    return {name.partition(":")[0]: version for name, version in _INST.findall(text)}


def parse_kernel_image(text: str, metapackage: str) -> str:
    """Return the image package's name from ``apt-cache show linux-image-ARCH``."""
    for line in text.splitlines():
        match = _IMAGE.search(line) if line.startswith("Depends:") else None
        if match:
            return match.group()
    raise LabProblem(f"{metapackage} depends on no kernel image, as apt-cache shows it")


def parse_kernel_headers(text: str) -> list[str]:
    """Return the other packages with headers and the kernel's own build tools, from
    ``apt-cache show linux-headers-RELEASE``; without the compiler.
    """
    return [
        name
        for line in text.splitlines()
        if line.startswith("Depends:")
        for name in _HEADERS.findall(line)
    ]


def unpack(debs: Iterable[Path], folder: Path) -> None:
    """Unpack ``debs`` into the new ``folder``, as dpkg would into a merged /usr."""
    for name in _MERGED:
        (folder / "usr" / name).mkdir(parents=True)
        (folder / name).symlink_to(f"usr/{name}")
    for deb in debs:
        files = subprocess.Popen(
            ["dpkg-deb", "--fsys-tarfile", str(deb)], stdout=subprocess.PIPE
        )
        tar = subprocess.run(
            ["tar", "-x", "--keep-directory-symlink", "-C", str(folder)],
            stdin=files.stdout,
            capture_output=True,
            text=True,
            check=False,
        )
        if files.wait() or tar.returncode:
            raise LabProblem(f"{deb} cannot be unpacked: {tar.stderr.strip()}")
