# SPDX-License-Identifier: GPL-2.0-or-later
"""The package's whole life on a host with systemd: the state afterwards is as before.

The content of the RPMs is unpacked, because the guest has no EL user space, and their
own scripts run, with rpm's argument. The command runs with the checkout's Python.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.packages.built import EARLIER, asked, built, files

from lab.guest import Guest

pytestmark = [pytest.mark.lab, pytest.mark.faults]

PARTS = ("python3-ovirt-rdma", "ovirt-rdma-host")
VDSMD = Path(__file__).parents[2] / "lab/vdsm_host/vdsmd.service"
POLICY = """version: 1
nfs: {rules: [{server: nas1, transport: require-rdma}]}
host: {module_options: {mlx4_core: {port_type_array: "1,1"}}}
"""
# The command of the package has EL's interpreter; the guest's has no PyYAML.
COMMAND = f"""#!/bin/sh
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/usr/lib/python3.9/site-packages
exec {shlex.quote(sys.executable)} -m ovirt_rdma.cli.host.main "$@"
"""
STATE = r"""
cd /
find etc usr/lib/systemd usr/lib/udev usr/lib/tmpfiles.d usr/libexec \
    usr/share/ovirt-rdma var/lib/ovirt-rdma run/ovirt-rdma \
    -printf '%p %y %m %U:%G %l\n' 2>/dev/null | sort
find etc -type f -exec sha256sum {} + | sort
systemctl list-unit-files --no-legend | sort
systemctl show -p ExecStart --value vdsmd.service | sed 's/start_time=.*//'
"""


class Rpm:
    """Does with a guest's files what rpm does with a package."""

    def __init__(self, guest: Guest, folder: Path) -> None:
        self.guest, self.folder = guest, folder

    def install(self, packages: dict[str, Path], installed: int) -> None:
        """Unpack ``packages`` and run their scripts; ``installed`` is 1, or 2 for an
        upgrade.
        """
        for part in PARTS:
            place = self.folder / packages[part].name
            place.mkdir(exist_ok=True)
            with subprocess.Popen(
                ["rpm2cpio", packages[part]], stdout=subprocess.PIPE
            ) as archive:
                command = ["cpio", "--quiet", "-idmu"]
                subprocess.run(command, stdin=archive.stdout, cwd=place, check=True)
            command_of_package = place / "usr/bin/ovirt-rdma-host"
            if command_of_package.is_file():
                command_of_package.write_text(COMMAND)
            command = ["tar", "-c", "-C", str(place), "--owner=0", "--group=0", "."]
            content = subprocess.run(command, capture_output=True, check=True).stdout
            self.guest.run("tar -x --no-overwrite-dir -C /", input=content, check=True)
        for part in PARTS:
            self.script(packages[part], "POSTIN", installed)
        for part in PARTS:
            self.script(packages[part], "POSTTRANS", installed)

    def erase(self, packages: dict[str, Path]) -> str:
        """Run the scripts and remove the files; return what the scripts print."""
        said = ""
        for part in reversed(PARTS):
            said += self.script(packages[part], "PREUN", 0)
            paths = sorted(files(packages[part]), reverse=True)
            self.guest.run(
                "while read -r path; do rm -f $path || rmdir $path; done 2>/dev/null",
                input="\n".join([*paths, ""]),
            )
            said += self.script(packages[part], "POSTUN", 0)
        # As the file triggers of EL's systemd.
        self.guest.run("systemctl daemon-reload", check=True)
        return said

    def script(self, package: Path, tag: str, argument: int) -> str:
        text = "\n".join(asked(package, f"%{{{tag}}}\n"))
        if text == "(none)":
            return ""
        done = self.guest.run(["sh", "-s", str(argument)], input=text, check=True)
        return done.stdout + done.stderr


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[Guest]:
    with Guest("hypervisor", systemd=True, disk=tmp_path / "hypervisor.img") as booted:
        yield booted


def rebooted(guest: Guest) -> None:
    guest.run("sync", check=True)
    guest.kill()
    guest.power_on()
    guest.wait_ready()
    guest.run("systemctl is-system-running --wait")


def state(guest: Guest) -> list[str]:
    return guest.run(STATE, check=True, timeout=300).stdout.splitlines()


def changes(before: list[str], after: list[str]) -> list[str]:
    removed = [f"- {line}" for line in sorted({*before} - {*after})]
    return removed + [f"+ {line}" for line in sorted({*after} - {*before})]


def test_the_life_of_the_package(guest: Guest, tmp_path: Path) -> None:
    rpm = Rpm(guest, tmp_path)
    earlier, new = built(9, earlier=True), built(9)

    def said(line: str) -> str:
        return guest.run(line, check=True, timeout=300).stdout

    said("mkdir -p /usr/lib/systemd/system")
    guest.run(
        "cat > /usr/lib/systemd/system/vdsmd.service",
        input=VDSMD.read_text(),
        check=True,
    )
    rebooted(guest)
    before = state(guest)

    rpm.install(earlier, 1)
    assert said("ovirt-rdma-host --version").endswith(f" {EARLIER}\n")
    assert "launcher" not in said("systemctl show -p ExecStart vdsmd")
    guest.run("cat > /etc/ovirt-rdma/policy.yaml", input=POLICY, check=True)
    said("ovirt-rdma-host policy load && ovirt-rdma-host apply")
    said("ovirt-rdma-host enable")
    assert "launcher" in said("systemctl show -p ExecStart vdsmd")
    rebooted(guest)
    assert "launcher" in said("systemctl show -p ExecStart vdsmd")
    assert "port_type_array" in said("cat /etc/modprobe.d/ovirt-rdma.conf")

    enabled = state(guest)
    rpm.install(new, 2)
    guest.run("cat > /etc/ovirt-rdma/policy.yaml", input=POLICY, check=True)
    changed = [
        line
        for line in changes(enabled, state(guest))
        if "usr/" not in line and "policy.yaml" not in line
    ]
    assert changed == []
    assert said("ovirt-rdma-host --version").endswith(" 0.1.0\n")

    said("ovirt-rdma-host revert")
    said("ovirt-rdma-host disable")
    assert rpm.erase(new) == ""
    rebooted(guest)
    assert changes(before, state(guest)) == []
