# SPDX-License-Identifier: GPL-2.0-or-later
"""Let a guest with systemd run our unit with the real opensm, on ibsim's fabric.

The guest's HCA is of lab/ib_fabric, which answers no SMPs. So opensm and the tools
reach ibsim by its preloaded library, and the kernel's state of the port is covered by
that of ibsim's port with the same GUID.
"""

from __future__ import annotations

import json
from typing import Any

from lab import installed_host, simulated_fabric
from lab.guest import Guest
from lab.guest_archive import GuestArchive
from lab.infiniband import InfiniBand

# The first port of lab/ib_fabric/port.c, and that of a host that only asks.
HV1, HV2 = 0x2C90300ABC001, 0x2C90300ABC011
GUID = f"0x{HV1:016x}"
UNIT = f"ovirt-rdma-opensm@{GUID}.service"
SETTINGS = f"/etc/ovirt-rdma/opensm-{GUID}.conf"
LOG = f"/var/log/ovirt-rdma-opensm/{GUID}.log"
CACHE = f"/var/cache/ovirt-rdma-opensm/{GUID}"
_UNITS = "/etc/systemd/system"
_FOLDER = "/srv/fabric"
_PORT = "/sys/class/infiniband/mlx4_0/ports/1"
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_TOOLS = ("sminfo", "saquery", "smpquery", "ibnetdiscover")
_FABRIC = InfiniBand(hcas=1)
_POLICY = """\
version: 1
fabric:
  hosts: {hv1: ["0002:c903:00ab:c001"]}
  subnet_managers: {hv1: {priority: 14}}
"""
# Started by the units that need it, at boot too.
_IBSIM = f"""\
[Service]
EnvironmentFile={_FOLDER}/reach
ExecStart=/bin/sh -c 'sleep infinity | %s -s -n {_FOLDER}/topology'
"""
# Only what the library needs. Nothing of the sandbox is loosened: it has a socket of
# AF_UNIX, and makes files where opensm may write: in /, its folder.
_DROP_IN = f"""\
[Unit]
Wants=ibsim.service
After=ibsim.service
[Service]
EnvironmentFile={_FOLDER}/reach
EnvironmentFile={_FOLDER}/preload
"""
_TOOL = f"""\
#!/bin/bash
set -a
. {_FOLDER}/reach
. {_FOLDER}/preload
SIM_HOST=${{ASKED_AT:-hv1}}
cd /run
exec %s "${{@/mlx4_0/ibsim0}}"
"""
# The kernel's files of the port, with ibsim's values. Each is written at once and with
# the same length, so that nobody reads a part of it.
_MIRROR = f"""\
#!/bin/bash
mkdir -p /run/port
for name in state lid sm_lid; do
    cp {_PORT}/$name /run/port
    mount --bind /run/port/$name {_PORT}/$name
done
put() {{ printf '%-15s\\n' "$2" 1<> /run/port/$1; }}
value() {{ sed -n "s/^$1:\\.*//p" <<< "$shown"; }}
while :; do
    shown=$(smpquery portinfo -D 0 2> /dev/null) || continue
    put lid "$(printf '%#x' "$(value Lid)")"
    put sm_lid "$(printf '%#x' "$(value SMLid)")"
    case $(value LinkState) in
        Active) put state '4: ACTIVE' ;;
        *) put state '2: INIT' ;;
    esac
    sleep 0.5
done
"""


class ManagedHost:
    """The ``guest``, hv1, with our package; it has a disk, and can be booted again."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        installed_host.install(guest)
        self.said("tar -x -C /; systemctl daemon-reload", _archive())
        self.said("cat > /etc/ovirt-rdma/policy.yaml", _POLICY)
        self.connect()

    def connect(self) -> None:
        """Load the HCA and let its port follow ibsim's; after each boot."""
        _FABRIC.load(self.guest)
        self.said("systemctl start ibsim.service")
        self.said("until smpquery nodeinfo -D 0; do sleep 0.2; done")
        self.said(f"systemd-run --unit=mirror {_FOLDER}/mirror")
        self.said(f"until findmnt {_PORT}/sm_lid; do sleep 0.2; done")

    def command(self, *words: str, code: int = 0) -> Any:
        """Run ``ovirt-rdma-host``, check its exit code, and return its document."""
        argv = [installed_host.COMMAND, *words, "-o", "json"]
        done = self.guest.run(argv, timeout=600)
        assert done.exit_code == code, done
        return json.loads(done.stdout)

    def said(self, line: str, input: str | bytes = b"") -> str:
        """Run a shell line and return its output."""
        done = self.guest.run(line, input=input, timeout=600, check=True)
        return done.stdout.strip()

    def shown(self, what: str) -> str:
        """Return a property of our unit, as systemd has it."""
        return self.said(f"systemctl show -p {what} --value '{UNIT}'")

    def waits_for_master(self) -> None:
        """Wait until another host finds opensm as the master."""
        found = f"ASKED_AT=hv2 sminfo | grep -q 'guid {HV1:#x},.*SMINFO_MASTER'"
        self.said(f"until {found}; do sleep 0.5; done")


def _archive() -> bytes:
    package = simulated_fabric.fetched()
    library = package / _LIBRARIES
    reach = f"IBSIM_SOCKNAME=lab\nLD_LIBRARY_PATH={library}\n"
    preload = f"LD_PRELOAD={library}/umad2sim/libumad2sim.so\nSIM_HOST=hv1\n"
    archive = GuestArchive()
    topology = simulated_fabric.topology_text({"hv1": HV1, "hv2": HV2})
    for name, text, mode in (
        ("reach", reach, 0o644),
        ("preload", preload, 0o644),
        ("topology", topology, 0o644),
        ("mirror", _MIRROR, 0o755),
    ):
        archive.add(text.encode(), f"{_FOLDER}/{name}", mode)
    ibsim = (_IBSIM % (package / "usr/bin/ibsim")).encode()
    archive.add(ibsim, f"{_UNITS}/ibsim.service")
    archive.add(_DROP_IN.encode(), f"{_UNITS}/ovirt-rdma-opensm@.service.d/lab.conf")
    for tool in _TOOLS:
        wrapper = _TOOL % (package / "usr/sbin" / tool)
        archive.add(wrapper.encode(), f"/usr/sbin/{tool}", 0o755)
    archive.add((package / "usr/sbin/opensm").read_bytes(), "/usr/sbin/opensm", 0o755)
    return archive.content()
