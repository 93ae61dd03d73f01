#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""``python -m tools.packages dist|rpm``: make the source archive, or the packages.

dist writes ``dist/ovirt-rdma-VERSION.tar.gz`` with the files of the checkout, and rpm
the packages of EL9 and EL10 too, in ``dist/el9`` and ``dist/el10``. The same files give
the same bytes, whoever builds them, and wherever, on machines with the same Python and
rpm. The exit code is 0; 1 if something failed, or the versions contradict each other.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

CHECKOUT = Path(__file__).resolve().parents[1]
DIST = CHECKOUT / "dist"
SPEC = Path("rpm/ovirt-rdma.spec")
MACROS = Path("rpm/debian.macros")
NAME = "ovirt-rdma"
# EL's Python of each version.
PYTHONS = {9: "3.9", 10: "3.12"}
_RELEASED = re.compile(r"^## (\d[\d.]*) - (\d{4}-\d\d-\d\d)$", re.MULTILINE)
_UNRELEASED = re.compile(r"^## Unreleased$", re.MULTILINE)
_ENTRY = re.compile(r"^\* \w{3} (\w{3} \d\d \d{4}) .* - ([\d.]+)-\d+$", re.MULTILINE)


class PackageProblem(Exception):
    """A package cannot be built; the text is a sentence."""


@dataclass(frozen=True)
class Release:
    """What the files of a checkout say about its version.

    ``spec_version`` is the Version of the spec. ``released`` and ``entries`` are pairs
    of version and day, the newest first: the headings of CHANGELOG.md and the entries
    of the spec. ``unreleased``: CHANGELOG.md has a section for the next version.
    """

    version: str
    spec_version: str
    released: tuple[tuple[str, datetime.date], ...]
    entries: tuple[tuple[str, datetime.date], ...]
    unreleased: bool


def release_of(module: str, spec: str, changelog: str) -> Release:
    """Return the release of the texts host/__init__.py, spec and CHANGELOG.md; pure.

    Raises PackageProblem if one of them names no version.
    """
    version = re.search(r'^__version__ = "([\d.]+)"$', module, re.MULTILINE)
    spec_version = re.search(r"^Version: +([\d.]+)$", spec, re.MULTILINE)
    if version is None or spec_version is None:
        raise PackageProblem("host/__init__.py or the spec has no version")
    return Release(
        version[1],
        spec_version[1],
        tuple(
            (name, datetime.date.fromisoformat(day))
            for name, day in _RELEASED.findall(changelog)
        ),
        tuple(
            (name, datetime.datetime.strptime(day, "%b %d %Y").date())
            for day, name in _ENTRY.findall(spec)
        ),
        bool(_UNRELEASED.search(changelog)),
    )


def contradictions(release: Release) -> Iterator[str]:
    """Yield a sentence for each way in which the files contradict each other; pure."""
    if release.spec_version != release.version:
        yield (
            f"the spec has version {release.spec_version}, host/__init__.py has "
            f"{release.version}"
        )
    if not release.entries:
        yield "the spec's changelog has no entry"
        return
    entries = list(release.entries)
    newest, _ = entries[0]
    if newest != release.version:
        yield (
            f"the spec's newest changelog entry is for {newest}, the version is "
            f"{release.version}"
        )
    if release.unreleased:
        # The version that is being made: its day is only in the spec.
        entries = entries[1:]
    if entries != list(release.released):
        yield (
            "the versions and days of CHANGELOG.md and of the spec's changelog differ: "
            f"{_shown(release.released)}; {_shown(entries)}"
        )


def _shown(entries: Sequence[tuple[str, datetime.date]]) -> str:
    return ", ".join(f"{name} of {day}" for name, day in entries) or "none"


def checked_release(checkout: Path = CHECKOUT) -> Release:
    """Return the release of ``checkout``.

    Raises PackageProblem, with all contradictions, if its files disagree.
    """
    names = ("host/__init__.py", SPEC, "CHANGELOG.md")
    release = release_of(*((checkout / name).read_text("utf-8") for name in names))
    found = list(contradictions(release))
    if found:
        raise PackageProblem("; ".join(found))
    return release


def source_archive(folder: Path, checkout: Path = CHECKOUT) -> Path:
    """Write the source archive into ``folder`` and return its path.

    It has the files that git tracks, and new ones that it does not ignore.
    """
    release = checked_release(checkout)
    _, day = release.entries[0]
    when = int(
        datetime.datetime(
            day.year, day.month, day.day, tzinfo=datetime.timezone.utc
        ).timestamp()
    )
    top = f"{NAME}-{release.version}"
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in _files(checkout):
            member = archive.gettarinfo(checkout / name, f"{top}/{name}")
            member.uid = member.gid = 0
            member.uname = member.gname = "root"
            member.mtime = when
            if member.isfile():
                member.mode = 0o755 if member.mode & 0o100 else 0o644
                with (checkout / name).open("rb") as file:
                    archive.addfile(member, file)
            else:
                archive.addfile(member)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{top}.tar.gz"
    path.write_bytes(gzip.compress(raw.getvalue(), compresslevel=6, mtime=when))
    return path


def _files(checkout: Path) -> list[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=checkout, capture_output=True, check=True)
    names = {name.decode() for name in done.stdout.split(b"\0") if name}
    # Without files that were removed and still are in the index.
    return sorted(
        name
        for name in names
        if (checkout / name).is_symlink() or (checkout / name).exists()
    )


def find_python(version: str) -> Optional[Path]:
    """Return a Python of ``version``, such as 3.9, from PATH or pyenv; else None."""
    name = f"python{version}"
    candidates = [shutil.which(name)]
    versions = Path.home() / ".pyenv/versions"
    candidates += map(str, sorted(versions.glob(f"{version}.*/bin/{name}")))
    for candidate in filter(None, candidates):
        command = [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:
            return Path(candidate)
    return None


def build(archive: Path, el: int, folder: Path, url: str = "") -> list[Path]:
    """Build the packages of ``archive`` for EL ``el`` into ``folder``.

    ``url`` is where the release will be served; what is installed names it.
    Returns their paths; the source package is one of them. Raises PackageProblem with
    the end of rpmbuild's output if it fails.
    """
    python = find_python(PYTHONS[el])
    with tempfile.TemporaryDirectory(prefix="ovirt-rdma-rpm.") as top:
        shutil.copy(archive, top)
        shutil.copy(CHECKOUT / MACROS, top)
        enter = _enter_fixed_place(top)
        place = _PLACE if enter else top
        defines = {
            "_topdir": place,
            "_tmppath": f"{place}/tmp",  # noqa: S108
            "el": str(el),
            "python3_version": PYTHONS[el],
            "with_byte_code": str(int(python is not None)),
            **({"project_url": url} if url else {}),
        }
        command = [*enter, "rpmbuild", "-ta", "--nodeps"]
        command += ["--load", f"{place}/{MACROS.name}"]
        for name, value in defines.items():
            command += ["--define", f"{name} {value}"]
        done = subprocess.run(
            [*command, f"{place}/{archive.name}"],
            env={
                **os.environ,
                "BUILD_PYTHON": sys.executable,
                "TARGET_PYTHON": str(python or ""),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            end = "\n".join(done.stdout.splitlines()[-30:])
            raise PackageProblem(f"rpmbuild failed for EL{el}:\n{end}")
        folder.mkdir(parents=True, exist_ok=True)
        return [
            Path(shutil.copy(path, folder)) for path in sorted(Path(top).rglob("*.rpm"))
        ]


# Each Linux system has it, and hardly anything needs it.
_PLACE = "/mnt"
_BIND = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'


def _enter_fixed_place(top: str) -> list[str]:
    """Return a command that runs another with ``top`` at _PLACE as well.

    rpm keeps the spec in the source package, with the paths of the build in it, and the
    other packages name that one's digest. Empty if this machine does not permit it.
    """
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    enter = ["unshare", "--mount", *user, "sh", "-c", _BIND, "sh", top, _PLACE]
    needed = (sys.executable, sys.base_prefix, str(CHECKOUT))
    if any(path.startswith(f"{_PLACE}/") for path in needed):
        return []
    try:
        done = subprocess.run([*enter, "true"], capture_output=True, check=False)
    except FileNotFoundError:
        return []
    return [] if done.returncode else enter


def make_packages(folder: Path) -> None:
    """Build archive and packages in ``folder``, and print their paths."""
    archive = source_archive(folder)
    print(_below(archive))
    for el, version in PYTHONS.items():
        place = folder / f"el{el}"
        shutil.rmtree(place, ignore_errors=True)
        for path in build(archive, el, place):
            print(_below(path))
        if find_python(version) is None:
            print(
                f"note: the packages for EL{el} have no byte code, because there is no "
                f"Python {version} on this machine; do not publish them (pyenv install "
                f"{version})"
            )


def _below(path: Path) -> str:
    return str(path.relative_to(CHECKOUT))


def main(words: Optional[Sequence[str]] = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.packages", description=__doc__.splitlines()[0]
    )
    parser.add_argument("what", choices=("dist", "rpm"))
    what = parser.parse_args(words).what
    try:
        if what == "dist":
            print(_below(source_archive(DIST)))
        else:
            make_packages(DIST)
    except PackageProblem as problem:
        print(f"packages: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
