#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""``python -m tools.release KEY [URL]``: make what is published, in dist/release.

KEY names a secret key of gpg's, which signs packages, metadata and checksums. URL is
where the folder will be served; without one, the repository works from here
(``file:``). The folder has

    ovirt-rdma.repo               for /etc/yum.repos.d
    RPM-GPG-KEY-ovirt-rdma        the public key
    el9/, el10/                   dnf repositories; source/ has the source packages
    ovirt-rdma-VERSION.tar.gz     the source archive
    ovirt_rdma-host-VERSION.tar.gz    the Ansible collection
    html/                         the documentation
    ovirt-rdma-VERSION.spdx.json  what each package consists of (SPDX 2.3)
    SHA256SUMS, SHA256SUMS.asc    of all files above

The exit code is 0; 1 if something failed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from tools import packages

FOLDER = packages.DIST / "release"
KEY_FILE = "RPM-GPG-KEY-ovirt-rdma"
REPOSITORY = """\
[ovirt-rdma]
name=ovirt-rdma for EL$releasever
baseurl={url}/el$releasever
enabled=1
gpgcheck=1
repo_gpgcheck=1
gpgkey={url}/{key}
"""


def make_release(
    folder: Path,
    key: str,
    url: str = "",
    built: Optional[dict[int, Sequence[Path]]] = None,
) -> None:
    """Write all files of a release into ``folder``, which is emptied first.

    ``built`` has packages that are built already, by EL. Raises PackageProblem with the
    end of a program's output if it fails, or packages have no byte code.
    """
    release = packages.checked_release()
    try:
        _run("gpg", "--list-secret-keys", key)
    except packages.PackageProblem as problem:
        raise packages.PackageProblem(f"key {key}: {problem}") from None
    shutil.rmtree(folder, ignore_errors=True)
    archive = packages.source_archive(folder)
    url = url.rstrip("/")
    site = url or folder.resolve().as_uri()
    public = _run("gpg", "--armor", "--export", key)
    (folder / KEY_FILE).write_text(public)
    (folder / "ovirt-rdma.repo").write_text(REPOSITORY.format(url=site, key=KEY_FILE))
    binaries = []
    for el, version in packages.PYTHONS.items():
        if built is None and packages.find_python(version) is None:
            raise packages.PackageProblem(
                f"packages for EL{el} need a Python {version} for their byte code; "
                f"with pyenv: pyenv install {version}"
            )
        place = folder / f"el{el}"
        paths = built[el] if built else packages.build(archive, el, place / "new", url)
        binaries += _repository(place, paths, key)
        shutil.rmtree(place / "new", ignore_errors=True)
    collection = packages.CHECKOUT / "host_deploy"
    galaxy = Path(sys.executable).with_name("ansible-galaxy")
    _run(galaxy, "collection", "build", collection, "--output-path", folder)
    _documents(folder / "html")
    document = _bill_of_materials(release, binaries)
    name = f"{packages.NAME}-{release.version}.spdx.json"
    (folder / name).write_text(json.dumps(document, indent=2) + "\n")
    sums = "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}\n"
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    )
    (folder / "SHA256SUMS").write_text(sums)
    _sign_beside(folder / "SHA256SUMS", key)


def _documents(folder: Path) -> None:
    """Write the documentation as HTML, as ``make docs`` does, into ``folder``."""
    program = Path(sys.executable).with_name("sphinx-build")
    top = packages.CHECKOUT
    words = ("-q", "-W", "-c", top / "docs", "-d", top / "build/docs-tree")
    _run(program, *words, "-b", "html", top, folder)


def _repository(place: Path, paths: Sequence[Path], key: str) -> list[Path]:
    """Sign packages in ``place``, a repository then; return the binary ones."""
    source = place / "source"
    source.mkdir(parents=True)
    binaries = []
    for path in paths:
        of_source = path.name.endswith(".src.rpm")
        copy = Path(shutil.copy(path, source if of_source else place))
        sign(copy, key)
        binaries += [] if of_source else [copy]
    _run("createrepo_c", "--quiet", "--no-database", "--excludes=source/*", place)
    _sign_beside(place / "repodata/repomd.xml", key)
    return sorted(binaries)


def sign(package: Path, key: str) -> None:
    """Sign a package with gpg's secret ``key``, in place of an earlier signature.

    Raises PackageProblem.
    """
    # Debian's rpm does not know where gpg is.
    defines = (f"_gpg_name {key}", f"__gpg {shutil.which('gpg')}")
    words = [word for define in defines for word in ("--define", define)]
    _run("rpmsign", *words, "--addsign", package)


def _sign_beside(path: Path, key: str) -> None:
    """Write a detached signature beside a file."""
    words = ("--batch", "--yes", "--local-user", key, "--armor", "--detach-sign")
    _run("gpg", *words, path)


def _bill_of_materials(
    release: packages.Release, paths: Sequence[Path]
) -> dict[str, object]:
    """Return an SPDX 2.3 document: each package, and what it depends on.

    Of what it depends on only the name and the required version are known.
    """
    _, day = release.entries[0]
    ours = {path: _queried(path, "%{NAME} %{VERSION} %{LICENSE}") for path in paths}
    names = {line.split()[0] for line in ours.values()}
    listed: dict[str, dict[str, object]] = {}
    relations = []
    for path, line in ours.items():
        name, version, licence = line.split(" ", 2)
        suffix = f"{version}-{path.parent.name}"
        ref = f"SPDXRef-{name}-{suffix}"
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        listed[ref] = {
            **_package(ref, name, version, licence),
            "packageFileName": f"{path.parent.name}/{path.name}",
            "checksums": [{"algorithm": "SHA256", "checksumValue": digest}],
        }
        relations.append(("SPDXRef-DOCUMENT", "DESCRIBES", ref))
        form = "[%{REQUIRES} %{REQUIREFLAGS:depflags} %{REQUIREVERSION}\n]"
        for required in sorted(set(_queried(path, form).splitlines())):
            what, _, wanted = required.partition(" ")
            # Files, scripts and rpm's features are no packages.
            if "(" in what or what.startswith("/"):
                continue
            other = f"SPDXRef-{what}" + (f"-{suffix}" if what in names else "")
            if what not in names:
                listed[other] = _package(other, what, wanted.strip() or "NOASSERTION")
            relations.append((ref, "DEPENDS_ON", other))
    name = f"{packages.NAME}-{release.version}"
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": f"urn:{name}",
        "creationInfo": {
            "created": f"{day}T00:00:00Z",
            "creators": ["Organization: ovirt-rdma developers"],
        },
        "packages": list(listed.values()),
        "relationships": [
            {
                "spdxElementId": one,
                "relationshipType": kind,
                "relatedSpdxElement": other,
            }
            for one, kind, other in relations
        ],
    }


def _queried(package: Path, form: str) -> str:
    return _run("rpm", "-qp", "--nosignature", "--qf", form, package)


def _package(
    ref: str, name: str, version: str, licence: str = "NOASSERTION"
) -> dict[str, object]:
    return {
        "SPDXID": ref,
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": licence,
        "copyrightText": "NOASSERTION",
    }


def _run(*words: object) -> str:
    command = [str(word) for word in words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise packages.PackageProblem(f"{command[0]} is not installed") from None
    if done.returncode:
        end = (done.stderr or done.stdout).strip()
        raise packages.PackageProblem(f"{command[0]} failed: {end}")
    return done.stdout


def main(words: Optional[Sequence[str]] = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.release")
    parser.add_argument("key", help="a secret key of gpg's: its fingerprint or address")
    parser.add_argument("url", nargs="?", default="", help="where it will be served")
    arguments = parser.parse_args(words)
    if not arguments.key:
        print(
            "release: no key; make release RELEASE_KEY=FINGERPRINT "
            "(gpg --list-secret-keys)",
            file=sys.stderr,
        )
        return 1
    try:
        make_release(FOLDER, arguments.key, arguments.url)
    except packages.PackageProblem as problem:
        print(f"release: {problem}", file=sys.stderr)
        return 1
    print(f"{FOLDER.relative_to(packages.CHECKOUT)} is complete and signed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
