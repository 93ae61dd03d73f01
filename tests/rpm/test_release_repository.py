# SPDX-License-Identifier: GPL-2.0-or-later
"""``make release``: dnf installs, updates and removes from the repository it makes."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.guide import blocks
from support.packages.built import EARLIER, URL, built
from support.packages.machine import DATABASE

from tools import packages, release
from tools.metrics_reference import alerts
from tools.release import sign

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("dnf", "createrepo_c", "gpg", "rpmsign"))),
    reason="make lab-test installs dnf, createrepo-c, gnupg and rpm",
)

# The one of this machine: /usr/bin/python3 stands for EL's there.
PYTHON = os.path.realpath("/usr/bin/python3")
TOP = Path(__file__).parents[2]
# Names of EL's own packages, beside those of docs/dependencies.md.
BASE = ("bash", "coreutils", "systemd", "util-linux")
STUB = """\
Name: {name}
Version: {version}
Release: 1
Summary: Stands for EL's package
License: MIT
BuildArch: noarch
{provides}
%description
It has no files.
%files
"""
PYTHONS = {9: "3.9", 10: "3.12"}
PROVIDES = {
    "bash": "Provides: /bin/sh\nProvides: /usr/bin/bash",
    "python3": "Provides: python(abi) = {python}\nProvides: /usr/bin/python3",
}


def names_and_versions(el: int) -> dict[str, str]:
    """Return EL's packages with their versions, as docs/dependencies.md has them."""
    found = dict.fromkeys(BASE, "1")
    for line in (TOP / "docs/dependencies.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 6 and re.match("[a-z]", cells[0]) and cells[0] != "package":
            version = re.match(r"[\d.]+\d", cells[2 if el == 9 else 3])
            for name in re.findall(r"[\w-]+", re.sub(" and .* it ", " ", cells[0])):
                found.setdefault(name, version[0] if version else "99")
    return found


def make_stubs(folder: Path, el: int) -> Path:
    """Return a folder with packages that stand for those of EL."""
    folder.mkdir()
    for name, version in names_and_versions(el).items():
        spec = folder / f"{name}.spec"
        provides = PROVIDES.get(name, "").format(python=PYTHONS[el])
        if name.startswith("python3-"):
            # rpmbuild requires it where it has python3-packaging, as on EL.
            dist = name.partition("-")[2]
            provides = f"Provides: python{PYTHONS[el]}dist({dist}) = {version}"
        spec.write_text(STUB.format(name=name, version=version, provides=provides))
    words = ["--define", f"_topdir {folder}", "--define", f"_rpmdir {folder}/rpms"]
    specs = sorted(map(str, folder.glob("*.spec")))
    subprocess.run(
        ["rpmbuild", "-bb", "--quiet", *words, *specs], check=True, capture_output=True
    )
    return folder / "rpms"


@pytest.fixture(scope="module")
def stubs(tmp_path_factory) -> dict[int, Path]:
    folder = tmp_path_factory.mktemp("stubs")
    return {el: make_stubs(folder / f"el{el}", el) for el in PYTHONS}


def make_key(home: Path, name: str) -> str:
    home.mkdir(mode=0o700, exist_ok=True)
    words = ["--batch", "--passphrase", "", "--quick-generate-key", name, "rsa2048"]
    environment = {**os.environ, "GNUPGHOME": str(home)}
    subprocess.run(
        ["gpg", *words, "sign", "never"],
        env=environment,
        check=True,
        capture_output=True,
    )
    return name


@pytest.fixture(scope="module")
def gnupg(tmp_path_factory):
    """Folder of gpg's with two secret keys."""
    home = tmp_path_factory.mktemp("g")
    before = os.environ.get("GNUPGHOME")
    os.environ["GNUPGHOME"] = str(home)
    make_key(home, "release@example.com")
    make_key(home, "other@example.com")
    yield home
    subprocess.run(["gpgconf", "--kill", "all"], check=False)
    if before is None:
        del os.environ["GNUPGHOME"]
    else:
        os.environ["GNUPGHOME"] = before


@pytest.fixture(scope="module")
def published(tmp_path_factory, gnupg) -> Path:
    """The folder of a release that has this version and an earlier one."""
    folder = tmp_path_factory.mktemp("published") / "release"
    earlier = [path for name, path in built(9, earlier=True).items() if name != "src"]
    release.make_release(
        folder,
        "release@example.com",
        "file:///release",
        {9: [*built(9).values(), *earlier], 10: [*built(10).values()]},
    )
    return folder


@pytest.fixture
def site(request, machine, published, stubs):
    """A machine of EL9, or of the parameter, with the repository file, and a function
    that calls dnf.
    """
    el = getattr(request, "param", 9)
    shutil.copytree(published, machine.path("/release"))
    shutil.copytree(stubs[el], machine.path("/stubs"))
    machine.run("createrepo_c", "--quiet", "/stubs")
    repositories = machine.path("/etc/yum.repos.d")
    repositories.mkdir(parents=True)
    shutil.copy(published / "ovirt-rdma.repo", repositories)
    (repositories / "el.repo").write_text(
        "[el]\nname=el\nbaseurl=file:///stubs\ngpgcheck=0\n"
    )
    macros = machine.path("/etc/rpm")
    macros.mkdir(exist_ok=True)
    (macros / "macros").write_text(f"%_dbpath {DATABASE}\n")

    def dnf(*words: str, fails: bool = False) -> str:
        done = machine.run(
            *(PYTHON, "/usr/bin/dnf", "-y", f"--releasever={el}", *words), check=False
        )
        assert bool(done.returncode) == fails, done.stdout
        return done.stdout

    dnf.machine = machine
    return dnf


def version(site) -> str:
    query = ("-q", "--qf", "%{VERSION}", "ovirt-rdma-host")
    return site.machine.rpm(*query, check=False)


def test_dnf_installs_updates_and_removes(site):
    now = packages.checked_release().version
    site("install", f"ovirt-rdma-host-{EARLIER}")
    assert version(site) == EARLIER
    site("upgrade")
    assert version(site) == now
    assert site.machine.shell("ovirt-rdma-host --version").strip().endswith(now)
    site("downgrade", f"ovirt-rdma-host-{EARLIER}", f"python3-ovirt-rdma-{EARLIER}")
    assert version(site) == EARLIER
    site("remove", "ovirt-rdma-host")
    assert "not installed" in version(site)
    assert not site.machine.path("/usr/bin/ovirt-rdma-host").exists()
    site("install", "ovirt-rdma-engine")
    assert site.machine.shell("ovirt-rdma --version").strip().endswith(now)


def test_a_new_hypervisor_takes_five_commands(site):
    """From an empty root with EL's packages to a vdsmd of ours, as docs/install.md has
    it. There is no systemd to restart vdsmd: what it would start is run instead.
    """
    site.machine.path("/etc/yum.repos.d/ovirt-rdma.repo").unlink()
    (block,) = blocks("The packages")
    lines = block.splitlines()
    assert len(lines) == 5
    restart = " --restart-vdsmd"
    assert lines[-1].endswith(restart)
    shown = []
    for line in lines:
        shown.append(f"# {line}")
        here = line.replace(" URL/", " file:///release/").removesuffix(restart)
        if here.startswith("dnf "):
            shown.append(site(*here.split()[1:]))
        else:
            shown.append(site.machine.shell(here))
    said = "\n".join(shown)
    assert "/etc/ovirt-rdma/policy.yaml is loaded" in said
    assert shown[-1].endswith("Now enabled.\n")
    assert site.machine.path("/etc/ovirt-rdma/enabled").exists()
    assert "stock vdsmd" in site.machine.start_vdsmd()
    status = site.machine.shell("ovirt-rdma-host status", check=False)
    assert re.search("enabled +yes, mode vdsmd", status), status
    print(said, status, sep="\n")


@pytest.mark.parametrize("site", PYTHONS, ids=lambda el: f"el{el}", indirect=True)
def test_each_el_has_all_that_the_packages_require(site):
    """By the names and versions of docs/dependencies.md."""
    ours = ("ovirt-rdma-host", "ovirt-rdma-engine", "ovirt-rdma-portal")
    site("install", *ours)
    assert site.machine.rpm("-V", *ours, "python3-ovirt-rdma") == ""


def test_packages_of_another_key_are_refused(site, gnupg):
    for path in site.machine.path("/release/el9").glob("*.rpm"):
        sign(path, "other@example.com")
    # Also if somebody could make the metadata agree with them.
    repository = site.machine.path("/etc/yum.repos.d/ovirt-rdma.repo")
    text = repository.read_text()
    repository.write_text(text.replace("repo_gpgcheck=1", "repo_gpgcheck=0"))
    site.machine.run("createrepo_c", "--quiet", "--no-database", "/release/el9")
    output = site("install", "ovirt-rdma-host", fails=True)
    assert "GPG check FAILED" in output
    assert "not installed" in version(site)


def test_metadata_that_was_changed_is_refused(site):
    repomd = site.machine.path("/release/el9/repodata/repomd.xml")
    repomd.write_text(repomd.read_text().replace("<revision>", "<revision>1"))
    output = site("install", "ovirt-rdma-host", fails=True)
    assert "GPG verification error" in output or "Bad GPG signature" in output
    assert "not installed" in version(site)


def test_a_dependency_that_no_repository_has_is_named(site):
    for path in site.machine.path("/stubs").rglob("rdma-core-*.rpm"):
        path.unlink()
    site.machine.run("createrepo_c", "--quiet", "/stubs")
    output = site("install", "ovirt-rdma-host", fails=True)
    assert "nothing provides rdma-core needed by ovirt-rdma-host" in output


def test_the_sums_are_signed_and_of_all_files(published, gnupg):
    words = ["gpg", "--verify", "SHA256SUMS.asc", "SHA256SUMS"]
    subprocess.run(words, cwd=published, check=True, capture_output=True)
    lines = (published / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
    files = {
        str(path.relative_to(published)): path
        for path in published.rglob("*")
        if path.is_file() and not path.name.startswith("SHA256SUMS")
    }
    assert sums == {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in files.items()
    }
    now = packages.checked_release().version
    assert {
        "ovirt-rdma.repo",
        release.KEY_FILE,
        f"ovirt-rdma-{now}.tar.gz",
        f"ovirt_rdma-host-{now}.tar.gz",
        f"ovirt-rdma-{now}.spdx.json",
        f"el10/source/ovirt-rdma-{now}-1.el10.src.rpm",
    } <= set(files)


def test_alerts_lead_to_pages_of_the_release(published):
    command = "rpm2cpio $1 | cpio --quiet -i --to-stdout '*.rules.yml'"
    words = ["sh", "-c", command, "sh", built(9, earlier=True)["ovirt-rdma-host"]]
    rules = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    urls = re.findall("runbook_url: (.*)", rules)
    assert len(urls) == len(alerts())
    for url in urls:
        page, _, anchor = url.partition("#")
        file = published / page.removeprefix(f"{URL}/")
        assert f' id="{anchor}"' in file.read_text(), url


def test_the_bill_of_materials_has_what_the_packages_require(published):
    (file,) = published.glob("*.spdx.json")
    document = json.loads(file.read_text())
    by_id = {one["SPDXID"]: one for one in document["packages"]}
    links = [
        (one["spdxElementId"], one["relatedSpdxElement"])
        for one in document["relationships"]
        if one["relationshipType"] == "DEPENDS_ON"
    ]
    now = packages.checked_release().version
    host = f"SPDXRef-ovirt-rdma-host-{now}-el10"
    assert (host, "SPDXRef-rdma-core") in links
    assert (host, f"SPDXRef-python3-ovirt-rdma-{now}-el10") in links
    assert all(one in by_id and other in by_id for one, other in links)
    assert by_id["SPDXRef-python3-pyyaml"]["versionInfo"] == ">= 5.4"
    for one in document["packages"]:
        if "packageFileName" in one:
            (check,) = one["checksums"]
            content = (published / one["packageFileName"]).read_bytes()
            assert check["checksumValue"] == hashlib.sha256(content).hexdigest()


def test_without_a_key_one_sentence_says_what_to_do(tmp_path, gnupg, capsys):
    assert release.main([""]) == 1
    assert "make release RELEASE_KEY=" in capsys.readouterr().err
    with pytest.raises(packages.PackageProblem, match="key nobody"):
        release.make_release(tmp_path / "r", "nobody@example.com")
    assert not (tmp_path / "r").exists()
