# SPDX-License-Identifier: GPL-2.0-or-later
"""Build the packages, and check what they consist of."""

from __future__ import annotations

import fnmatch
import importlib.util
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.packages.built import asked, files, what_is_packaged

from ovirt_rdma.host import __version__
from tools import packages as recipe

PARTS = (
    "python3-ovirt-rdma",
    "ovirt-rdma-host",
    "ovirt-rdma-engine",
    "ovirt-rdma-portal",
)
VDSM_FILES = Path(__file__).parents[1] / "data/packages/vdsm-files.txt"
# What programs of ours call, and the package that has it. VDSM's is there when VDSM
# starts our drop-in or hooks; sos's when sos loads our plugin.
OF_OTHERS = {
    "/bin/sh": "/bin/sh",
    "/bin/kill": "util-linux",
    "/bin/true": "coreutils",
    "/usr/bin/env": "coreutils",
    "/usr/bin/python3": "/usr/bin/python3",
    "/usr/bin/systemd-escape": "systemd",
    "/usr/libexec/vdsm/daemonAdapter": "vdsm",
    "/usr/libexec/vdsm/vdsmd": "vdsm",
    "/usr/sbin/opensm": "opensm",
}
STARTED_BY_SHELL = {"logger": "util-linux", "timeout": "coreutils"}
_PROGRAM = re.compile(r"(?<![\w}.])/(?:usr/)?(?:bin|sbin|libexec)/[\w./-]+")
_SHEBANGS = {
    b"#!/bin/sh",
    b"#!/usr/bin/python3",
    b"#!/usr/bin/python3 -s",
    b"#!/usr/bin/python3 -IS",
}


@pytest.fixture(scope="module")
def content(packages, tmp_path_factory) -> Path:
    """The files of all packages below a folder."""
    folder = tmp_path_factory.mktemp("content")
    for part in PARTS:
        with (folder / "archive").open("wb") as archive:
            subprocess.run(["rpm2cpio", packages[part]], stdout=archive, check=True)
        with (folder / "archive").open("rb") as archive:
            command = ["cpio", "--quiet", "-idmu"]
            subprocess.run(command, stdin=archive, cwd=folder, check=True)
    (folder / "archive").unlink()
    return folder


def all_files(packages) -> dict[str, str]:
    return {
        path: mode for part in PARTS for path, mode in files(packages[part]).items()
    }


def test_what_packit_and_copr_run(tmp_path):
    """In a copy of the checkout, as they do; with its own Python, without our venv."""
    shutil.unpack_archive(recipe.source_archive(tmp_path), tmp_path)
    (checkout,) = (path for path in tmp_path.iterdir() if path.is_dir())
    subprocess.run(["git", "init", "-q"], cwd=checkout, check=True)
    actions = yaml.safe_load((checkout / ".packit.yaml").read_text())["actions"]
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    said = {
        name: subprocess.run(
            "\n".join(["set -e", *commands]),
            shell=True,
            cwd=checkout,
            env=environ,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout
        for name, commands in actions.items()
    }
    assert said["get-current-version"] == f"{__version__}\n"
    archive = said["create-archive"].splitlines()[-1]
    assert archive == f"dist/ovirt-rdma-{__version__}.tar.gz"
    assert (checkout / archive).is_file()

    words = ["make", "-f", ".copr/Makefile", "srpm", f"outdir={tmp_path}/srpm"]
    subprocess.run(words, cwd=checkout, env=environ, check=True)
    (source,) = (tmp_path / "srpm").iterdir()
    assert Path(archive).name in files(source)


def test_two_builds_on_two_paths_are_equal(new, tmp_path, monkeypatch):
    """Another checkout, of another name, and another folder for the build."""
    (tmp_path / "first").mkdir()
    one = recipe.source_archive(tmp_path / "first")
    shutil.unpack_archive(one, tmp_path / "a-longer-name")
    (other,) = (tmp_path / "a-longer-name").iterdir()
    subprocess.run(["git", "init", "-q"], cwd=other, check=True)
    two = recipe.source_archive(tmp_path / "second", other)
    assert one.read_bytes() == two.read_bytes()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "a-longer-name"))
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setattr("tempfile.tempdir", None)
    packaged = what_is_packaged(two, tmp_path)
    built = recipe.build(packaged, 9, tmp_path / "packages")
    assert len(built) == len(new)
    for path in built:
        (same,) = [one for one in new.values() if one.name == path.name]
        assert path.read_bytes() == same.read_bytes(), path.name


def test_rpmlint_finds_nothing(packages):
    if shutil.which("rpmlint") is None:
        pytest.skip("rpmlint is not installed: apt install rpmlint")
    top = recipe.CHECKOUT
    done = subprocess.run(
        [
            *("rpmlint", "-c", top / "rpm/rpmlint.toml", top / recipe.SPEC),
            *packages.values(),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "0 errors, 0 warnings" in done.stdout, done.stdout


def test_names_and_versions(packages, el):
    version = recipe.checked_release().version
    for part in PARTS:
        form = "%{NAME} %{VERSION}-%{RELEASE} %{ARCH} %{LICENSE}\n"
        assert asked(packages[part], form) == [
            f"{part} {version}-1.el{el} noarch GPL-2.0-or-later"
        ]


def test_scripts_are_valid_shell(packages):
    found = 0
    for part in PARTS:
        for tag in ("PREIN", "POSTIN", "PREUN", "POSTUN", "PRETRANS", "POSTTRANS"):
            text = "\n".join(asked(packages[part], f"%{{{tag}}}\n"))
            if text != "(none)":
                found += 1
                subprocess.run(["sh", "-n"], input=text, text=True, check=True)
                # A macro that the build does not know stays as it is.
                assert "%" not in text
                # vdsmd continues as it is.
                # Our daemon takes the new code.
            ours = "mark-restart-system-units ovirt-rdmad.service"
            assert "restart" not in text.replace(ours, "")
    assert found == 8


def texts(content: Path) -> Iterator[tuple[str, str]]:
    """Yield path and text of what systemd, udev, VDSM or a shell read."""
    for pattern in (
        "usr/lib/systemd/system/*.service",
        "usr/lib/udev/rules.d/*",
        "usr/lib/tmpfiles.d/*",
        "usr/libexec/**/*",
        "usr/share/ovirt-rdma/**/*",
    ):
        found = [path for path in content.glob(pattern) if path.is_file()]
        assert found, pattern
        for path in found:
            yield str(path.relative_to(content)), path.read_text()


def test_everything_that_is_called_is_there(packages, content):
    ours = all_files(packages)
    requires = set(asked(packages["ovirt-rdma-host"], "[%{REQUIRENAME}\n]"))
    requires.add("vdsm")
    # A unit that is off until the policy names the host may lack its program.
    requires.update(asked(packages["ovirt-rdma-host"], "[%{SUGGESTNAME}\n]"))
    for name, text in texts(content):
        code = "\n".join(
            line
            for line in text.splitlines()
            if not line.startswith("#") or line[:2] == "#!"
        )
        for program in set(_PROGRAM.findall(code)):
            if program.endswith("/hooks") or program == "/usr/libexec/vdsm":
                continue
            if program in ours:
                assert ours[program][3] == "x", f"{name}: {program} is not executable"
            else:
                assert OF_OTHERS.get(program) in requires, f"{name}: {program}"
        for page in re.findall(r"man:(\S+)\((\d)\)", code):
            if page == ("opensm", "8"):
                continue
            assert "/usr/share/man/man{1}/{0}.{1}.gz".format(*page) in ours, name
    dropin = dict(texts(content))[
        "usr/share/ovirt-rdma/systemd/vdsmd.service.d/50-ovirt-rdma.conf"
    ]
    for program, package in STARTED_BY_SHELL.items():
        assert re.search(rf"\b{program} -", dropin)
        assert package in requires


def test_links_of_systemd_lead_to_units(content):
    links = list(content.glob("usr/lib/systemd/system/*.wants/*"))
    assert {link.name for link in links} == {
        "ovirt-rdma-block.service",
        "ovirt-rdma-recover.service",
        "ovirt-rdmad.service",
    }
    for link in links:
        assert link.is_symlink()
        assert link.resolve() == content / "usr/lib/systemd/system" / link.name


def test_programs_have_the_interpreters_of_el(content):
    for path in content.rglob("*"):
        if path.is_file() and path.stat().st_mode & stat.S_IXUSR:
            first = path.read_bytes().partition(b"\n")[0]
            assert first in _SHEBANGS, path


def test_byte_code_is_of_the_right_python(content, el):
    python = recipe.find_python(recipe.PYTHONS[el])
    if python is None:
        pytest.skip(f"there is no Python {recipe.PYTHONS[el]} on this machine")
    ask = "import importlib.util; print(importlib.util.MAGIC_NUMBER.hex())"
    magic = subprocess.run(
        [python, "-c", ask], capture_output=True, text=True, check=True
    )
    tag = f"cpython-{recipe.PYTHONS[el].replace('.', '')}"
    site = content / f"usr/lib/python{recipe.PYTHONS[el]}/site-packages"
    sources = list(site.rglob("*.py"))
    assert len(sources) > 150
    assert len(list(site.rglob("*.pyc"))) == 2 * len(sources)
    for source in sources:
        status = source.stat()
        for level in ("", ".opt-1"):
            code = source.parent / f"__pycache__/{source.stem}.{tag}{level}.pyc"
            head = code.read_bytes()[:16]
            assert head[:4].hex() == magic.stdout.strip()
            # Python uses byte code only of a source of this time and length.
            assert int.from_bytes(head[4:8], "little") == 0
            assert int.from_bytes(head[8:12], "little") == int(status.st_mtime)
            assert int.from_bytes(head[12:], "little") == status.st_size
            assert str(content).encode() not in code.read_bytes()


def test_modules_of_setup_cfg_are_there(content, el):
    """Each module of the checkout; tests, lab and benchmarks are not."""
    site = content / f"usr/lib/python{recipe.PYTHONS[el]}/site-packages/ovirt_rdma"
    rooms = ("host", "storage", "vdsm_hooks", "engine_sdk_tools", "cli")
    assert sorted(path.name for path in site.iterdir()) == sorted(rooms)
    for room in rooms:
        wanted = {
            str(path.relative_to(recipe.CHECKOUT))
            for path in (recipe.CHECKOUT / room).rglob("*.py")
        }
        assert wanted == {
            str(path.relative_to(site)) for path in (site / room).rglob("*.py")
        }
    assert importlib.util.find_spec("ovirt_rdma") is not None
    assert list((site / "engine_sdk_tools/playbooks").glob("*.yml"))
    # What `report` makes its page of.
    templates = "engine_sdk_tools/report/templates"
    assert {path.name for path in (site / templates).iterdir()} == {
        path.name for path in (recipe.CHECKOUT / templates).iterdir()
    }


def test_the_engines_package_requires_what_the_page_needs(packages):
    requires = asked(packages["ovirt-rdma-engine"], "[%{REQUIRENAME}\n]")
    assert "python3-jinja2" in requires


def vdsm_files(el: int) -> tuple[set[str], list[str]]:
    """Return the folders and the other files of VDSM, which may be patterns."""
    lines = [
        line.replace("PYTHON", f"/usr/lib/python{recipe.PYTHONS[el]}/site-packages")
        for line in VDSM_FILES.read_text().splitlines()
        if not line.startswith("#")
    ]
    folders = {line.removeprefix("%dir ").strip() for line in lines if "%dir" in line}
    return folders, [line.rstrip("/") for line in lines if "%dir" not in line]


def test_no_file_is_vdsms_too(packages, el):
    _, theirs = vdsm_files(el)
    assert len(theirs) > 500
    assert any(one.endswith("/usr/bin/vdsm-tool") for one in theirs)
    for path, mode in all_files(packages).items():
        if mode[0] == "d":
            continue
        # A pattern of byte code names all of its folder, which both have.
        assert not [
            one
            for one in theirs
            if fnmatch.fnmatchcase(path, one) and not one.endswith("__pycache__/*")
        ], path


def test_folders_that_vdsm_has_too_are_as_vdsm_makes_them(packages, el):
    folders, _ = vdsm_files(el)
    shared = {
        path: mode
        for path, mode in all_files(packages).items()
        if mode[0] == "d"
        and any(fnmatch.fnmatchcase(path, folder) for folder in folders)
    }
    assert "/usr/libexec/vdsm/hooks" in shared
    # A conflict otherwise: rpm compares mode and owner of folders of two packages.
    assert set(shared.values()) == {"drwxr-xr-x root root"}


def test_every_folder_of_ours_is_owned(packages):
    ours = all_files(packages)
    of_system = re.compile(
        r"(/[a-z]+){1,3}|/usr/lib/(python3\.\d+(/site-packages)?|systemd/system(-preset)?"
        r"(/[a-z-]+\.target\.wants)?|udev/rules\.d|tmpfiles\.d)|/var/lib"
        r"|/usr/share/(man/man\d|bash-completion(/completions)?|doc|licenses)"
        r"|/usr/share/ansible/collections(/ansible_collections)?"
        r"|.*/site-packages/sos(/report(/plugins(/__pycache__)?)?)?"
    )
    for path in ours:
        for folder in map(str, Path(path).parents):
            assert folder in ours or folder == "/" or of_system.fullmatch(folder), (
                folder
            )


def test_the_policy_is_the_admins_file(packages):
    form = "[%{FILENAMES} %{FILEFLAGS:fflags}\n]"
    flags = dict(
        line.split(" ", 1)
        for part in PARTS
        for line in asked(packages[part], form)
        if not line.endswith(" ")
    )
    assert flags["/etc/ovirt-rdma/policy.yaml"] == "cn"
    assert flags["/etc/ovirt-rdma/host-deploy.yml"] == "cn"
    assert flags["/usr/share/doc/python3-ovirt-rdma/policy.yaml"] == "d"
    assert [path for path in flags if path.startswith("/etc/")] == [
        "/etc/ovirt-rdma/policy.yaml",
        "/etc/ovirt-rdma/host-deploy.yml",
        "/etc/httpd/conf.d/ovirt-rdma-portal.conf",
    ]
