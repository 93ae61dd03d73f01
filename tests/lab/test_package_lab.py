# SPDX-License-Identifier: GPL-2.0-or-later
"""The packages' whole life on a host with systemd: the state afterwards is as before.

Debian's rpm installs the packages of EL9, with their scripts, in a guest.
"""

from __future__ import annotations

import shlex
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.packages.built import EARLIER, built

from lab.guest import Guest
from ovirt_rdma.host import __version__

pytestmark = pytest.mark.faults

PARTS = ("python3-ovirt-rdma", "ovirt-rdma-host")
VDSMD = Path(__file__).parents[2] / "lab/vdsm_host/vdsmd.service"
POLICY = """version: 1
nfs: {rules: [{server: nas1, transport: require-rdma}]}
host: {module_options: {mlx4_core: {port_type_array: "1,1"}}}
"""
# EL's Python finds what the packages install, and PyYAML; Debian's does not.
PYTHON = f"""#!/bin/sh
export PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH=/usr/lib/python3.9/site-packages:{sysconfig.get_paths()["purelib"]}
exec {shlex.quote(str(Path(sys.executable).resolve()))} "$@"
"""
# systemd 252, src/rpm/systemd-update-helper.in
HELPER = """#!/bin/sh
verb=$1; shift
case $verb in
  remove-system-units) systemctl --no-reload disable --now "$@" ;;
esac
"""
# What a hypervisor has before the packages.
FILES = {
    "/usr/lib/systemd/system/vdsmd.service": VDSMD.read_text(),
    "/usr/libexec/vdsm/vdsmd": "#!/bin/sh\nexec sleep infinity\n",
    "/usr/lib/systemd/systemd-update-helper": HELPER,
    "/usr/bin/python3": PYTHON,
}
# systemd 252, src/rpm/triggers.systemd.in: after the packages' own scripts.
TRIGGERS = (
    "systemctl daemon-reload; udevadm control --reload; "
    "systemd-tmpfiles --create ovirt-rdma.conf 2>/dev/null || :"
)
# All that the guest has written is in the upper layer of its file system, on its disk.
# Not what Python writes into this checkout, as a certificate that a machine adds.
STATE = r"""
# Soon after a boot, systemd ends some connections of those who ask. Without a
# pattern it reads all units of the machine, and may not answer in time.
asked() {
    until said=$(systemctl "$@" --no-legend 2>/dev/null); do sleep 0.2; done
    echo "$said"
}
mkdir -p /run/own
mountpoint -q /run/own || mount -t ext4 /dev/vda /run/own
cd /run/own/upper
find . \( -path ./rpmdb -o -path ./var/log -o -path ./var/lib/systemd -o -path ./root \
    -o -path './tmp/*' -o -path './var/tmp/*' -o -path './var/cache/*' \
    -o -path .CHECKOUT -o -name machine-id \) -prune \
    -o \( ! -type d -o -path '*ovirt*rdma*' -o -path '*vdsm*' \) \
    -printf '%p %y %m %U:%G %s %l\n' | sort
find etc -type f -exec sha256sum {} + | sort
ls -R /run/ovirt-rdma 2>/dev/null
asked list-unit-files 'ovirt-rdma*' 'vdsm*' | sort
# Whether a timer waits or runs depends on the moment.
asked list-units --all --plain 'ovirt-rdma*' | awk '{ print $1, $2, $3 }'
asked list-units --failed --plain
asked show -p ExecStart --value vdsmd.service | sed 's/start_time=.*//'
""".replace("CHECKOUT", str(Path(__file__).parents[2]))
# Without a bus, early at boot, systemctl does not wait.
STARTED = """
until systemctl is-system-running --wait | grep -qE 'running|degraded'; do
    sleep 0.2
done
"""


class Host:
    """A guest with rpm."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest

    def said(self, line: str) -> str:
        done = self.guest.run(line, timeout=600)
        assert done.exit_code == 0, (line, done)
        return done.stdout + done.stderr

    def write(self, path: str, text: str) -> None:
        line = f"mkdir -p {Path(path).parent}; rm -f {path}; cat >{path}"
        self.guest.run(line, input=text, check=True)

    def rpm(self, *words: object) -> str:
        line = shlex.join(["rpm", "--dbpath", "/rpmdb", *map(str, words)])
        said = self.said(f"{line} && {{ {TRIGGERS}; }}").splitlines()
        return "\n".join(one for one in said if not one.startswith("rpm: "))

    def install(self, packages: dict[str, Path]) -> str:
        return self.rpm("-U", "--nodeps", *(packages[part] for part in PARTS))

    def reboot(self) -> None:
        self.said("sync")
        self.guest.kill()
        self.guest.power_on()
        self.guest.wait_ready()
        self.guest.run(STARTED, timeout=300)

    def state(self) -> list[str]:
        return self.said(STATE).splitlines()

    def vdsmd_is_ours(self) -> bool:
        return "launcher/vdsmd" in self.said("systemctl show -p ExecStart vdsmd")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    disk = tmp_path_factory.mktemp("disk") / "hypervisor.img"
    with Guest("hypervisor", systemd=True, disk=disk) as guest:
        made = Host(guest)
        guest.run(STARTED, timeout=300)
        for path, text in FILES.items():
            made.write(path, text)
        made.said(f"chmod 755 {' '.join(list(FILES)[1:])}; mkdir /rpmdb")
        made.said("grep -q ^kvm: /etc/group || echo kvm:x:36: >>/etc/group")
        made.said("echo vdsm:x:36:36::/:/sbin/nologin >>/etc/passwd")
        made.said("systemctl daemon-reload")
        yield made


def changes(before: list[str], after: list[str]) -> list[str]:
    removed = [f"- {line}" for line in sorted({*before} - {*after})]
    return removed + [f"+ {line}" for line in sorted({*after} - {*before})]


def test_erase_of_an_enabled_host(host: Host) -> None:
    """Units that work at that moment leave nothing failed."""
    before = host.state()
    assert host.install(built(9)) == ""
    assert (
        host.said("systemctl show -p ActiveState --value ovirt-rdmad") == "inactive\n"
    )
    host.write("/etc/ovirt-rdma/policy.yaml", POLICY)
    host.said("ovirt-rdma-host policy load && ovirt-rdma-host enable")
    assert host.vdsmd_is_ours()
    host.said("until [ -e /run/ovirt-rdma/caps.json ]; do sleep 0.2; done")
    host.said("systemctl reload ovirt-rdmad.service")
    said = host.rpm("-e", *PARTS)
    assert "saved as /etc/ovirt-rdma/policy.yaml.rpmsave" in said
    assert not host.vdsmd_is_ours()
    host.said("rm -r /etc/ovirt-rdma")
    assert changes(before, host.state()) == []


def test_the_life_of_the_packages(host: Host) -> None:
    earlier, new = built(9, earlier=True), built(9)
    host.reboot()
    before = host.state()
    host.install(earlier)
    assert host.said("ovirt-rdma-host --version").endswith(f" {EARLIER}\n")
    host.write("/etc/ovirt-rdma/policy.yaml", POLICY)
    host.said("ovirt-rdma-host policy load && ovirt-rdma-host apply")
    assert not host.vdsmd_is_ours()
    host.said("ovirt-rdma-host enable")
    host.reboot()
    assert host.vdsmd_is_ours()
    host.said("until systemctl is-active ovirt-rdmad; do sleep 0.5; done")
    assert "port_type_array" in host.said("cat /etc/modprobe.d/ovirt-rdma.conf")

    enabled = host.state()
    assert host.install(new) == ""
    changed = [
        line
        for line in changes(enabled, host.state())
        if "./usr/" not in line and "ovirt-rdmad.service" not in line
    ]
    assert changed == []
    assert host.said("ovirt-rdma-host --version").endswith(f" {__version__}\n")

    host.said("ovirt-rdma-host revert && ovirt-rdma-host disable")
    said = host.rpm("-e", *PARTS)
    assert said.endswith("policy.yaml saved as /etc/ovirt-rdma/policy.yaml.rpmsave")
    assert "stay applied" not in said
    host.said("rm -r /etc/ovirt-rdma")
    host.reboot()
    assert changes(before, host.state()) == []
