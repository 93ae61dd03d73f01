# SPDX-License-Identifier: GPL-2.0-or-later
"""Build the packages once for all tests, and those of an earlier version."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import io
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools import packages

# Kept between runs: a build takes seconds, and the same files give the same packages.
CACHE = packages.CHECKOUT / ".cache/rpm"
EARLIER = "0.0.9"
# What only the earlier version has, besides its number: it is released.
URL = "https://example.org/rdma"
EARLIER_MODULE = "host/of_earlier.py"


@contextmanager
def _alone(cache: Path) -> Iterator[None]:
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def built(el: int, earlier: bool = False) -> dict[str, Path]:
    """Return the packages of the checkout for EL ``el`` by name.

    The source package is "src". ``earlier``: those of version EARLIER.
    """
    with _alone(CACHE):
        archive = what_is_packaged(packages.source_archive(CACHE), CACHE, earlier)
        content = archive.read_bytes()
        recipe = (packages.CHECKOUT / packages.MACROS).read_bytes()
        digest = hashlib.sha256(content + recipe).hexdigest()[:20]
        folder = CACHE / f"el{el}{'-earlier' if earlier else ''}"
        done = folder / digest
        if not done.is_dir():
            shutil.rmtree(folder, ignore_errors=True)
            packages.build(archive, el, folder / "new", URL if earlier else "")
            (folder / "new").rename(done)
        return {_name(path): path for path in done.glob("*.rpm")}


def _name(path: Path) -> str:
    if path.name.endswith(".src.rpm"):
        return "src"
    return re.sub(r"-[\d.]+-\d+\..*", "", path.name)


# The packages have nothing of these, so no test of ours makes another build.
_NOT_PACKAGED = re.compile(
    r"[^/]+/((bench|examples|lab|tests)/|tools/(?!dashboard\.py|man_pages\.py))"
)


def what_is_packaged(archive: Path, folder: Path, earlier: bool = False) -> Path:
    """Write the part of a source archive that is built into a file in ``folder``.

    ``earlier``: as version EARLIER, which has one module more.
    """
    version = packages.checked_release().version
    number = EARLIER if earlier else version
    top = f"{packages.NAME}-{number}"
    raw = io.BytesIO()
    with (
        tarfile.open(archive) as old,
        tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in old:
            if _NOT_PACKAGED.match(member.name):
                continue
            file = old.extractfile(member) if member.isfile() else None
            content = file.read() if file else b""
            name = member.name.partition("/")[2]
            if earlier and name in ("host/__init__.py", str(packages.SPEC)):
                content = content.replace(version.encode(), number.encode())
                content = re.sub(rb"(?m)^\* .* \d{4} ", rb"* Sun Nov 02 2025 ", content)
            _add(new, member, f"{top}/{name}", content)
            if earlier and name == "host/__init__.py":
                _add(new, member, f"{top}/{EARLIER_MODULE}", b"WAS = 1\n")
    path = folder / "packaged" / f"{top}.tar.gz"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(raw.getvalue(), mtime=0))
    return path


def _add(
    archive: tarfile.TarFile, like: tarfile.TarInfo, name: str, content: bytes
) -> None:
    member = like.replace(name=name, deep=True)
    if member.isfile():
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    else:
        archive.addfile(member)


def asked(package: Path, form: str) -> list[str]:
    """Return the lines that ``rpm -qp --qf FORM`` prints."""
    command = ["rpm", "-qp", "--nosignature", "--qf", form, str(package)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def files(package: Path) -> dict[str, str]:
    """Return the files of a package: ``"-rw-r--r-- root root"`` by their paths."""
    form = "[%{FILENAMES}\t%{FILEMODES:perms} %{FILEUSERNAME} %{FILEGROUPNAME}\n]"
    return dict(line.split("\t") for line in asked(package, form))
