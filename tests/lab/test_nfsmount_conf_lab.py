# SPDX-License-Identifier: GPL-2.0-or-later
"""Test RDMA without the add-on: stock VDSM, and an nfsmount.conf written by hand.

VDSM is the strict double, or VDSM_SOURCE's tree, with its own connection class. The
tests check the statements of docs/stock-vdsm.md. The guests have nfs-utils 2.6.2, with
Linux 6.12 2.8.3.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.topology import Topology
from lab.vdsm_daemon import local_path

# Stock VDSM, kernel and nfs-utils do not change with this source.
pytestmark = pytest.mark.faults

CHECKOUT = Path(__file__).resolve().parents[2]
MOUNT_FAILED = {100, 477}  # VDSM before 4.50.3 has the latter
FILE = "/etc/nfsmount.conf.d/rdma.conf"
NAMED, OTHER = "10.99.0.1:/srv/rdma", "10.99.0.1:/srv/other"

# connectStorageServer of an unchanged VDSM: one JSON definition per line.
STOCK_VDSM = """
import json, sys
from pathlib import Path
from support.storage.vdsm_under_test import load_vdsm

vdsm = load_vdsm()
base = Path("/rhev/data-center/mnt")
base.mkdir(parents=True, exist_ok=True)
with vdsm.fresh(base), vdsm.real_mounts():
    for line in sys.stdin:
        definition = json.loads(line)
        [(connection, status)] = vdsm.connect(definition)
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        place = connection._mountCon.getMountObj().fs_file
        found = [m.rpartition(" ")[2] for m in mounts if f" {place} " in m]
        print(json.dumps([status, found]), flush=True)
        if not status:
            vdsm.disconnect(definition)
"""


@dataclass(frozen=True)
class Mounted:
    """The status of stock VDSM, and the mount's options."""

    status: int
    mounts: list[str]

    @property
    def transport(self) -> str:
        """``rdma`` or ``tcp``; empty if the mount failed."""
        if self.status in MOUNT_FAILED:
            return ""
        (options,) = self.mounts
        words = dict(word.partition("=")[::2] for word in options.split(","))
        return words["proto"]


class Site:
    """A stock VDSM in the lab, and the file that its mount.nfs reads."""

    def __init__(self, lab: Topology) -> None:
        self.lab = lab

    def write(self, *places: str, more: str = "") -> None:
        """Write the file, with a section for each mount point."""
        lines = "Proto=rdma\nRetry=0\n" + more
        text = "".join(f'[ MountPoint "{place}" ]\n{lines}' for place in places)
        command = f"mkdir -p {Path(FILE).parent}; cat > {FILE}"
        self.lab.hypervisor.run(command, input=text, check=True)

    def connect(self, *definitions: dict[str, str]) -> list[Mounted]:
        whole = [
            {"id": "1", "protocol_version": "4.2", "connection": NAMED, **definition}
            for definition in definitions
        ]
        environment = {"PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'tests'}"}
        if "VDSM_SOURCE" in os.environ:
            environment["VDSM_SOURCE"] = os.environ["VDSM_SOURCE"]
        result = self.lab.hypervisor.run(
            [sys.executable, "-c", STOCK_VDSM],
            input="".join(json.dumps(one) + "\n" for one in whole),
            environment=environment,
            timeout=600,
            check=True,
        )
        return [Mounted(*json.loads(line)) for line in result.stdout.splitlines()]


@pytest.fixture
def site(two_guests: Topology) -> Iterator[Site]:
    for path in ("/srv/rdma", "/srv/other"):
        two_guests.nfs.add_export(path)
    yield Site(two_guests)
    two_guests.hypervisor.run(
        "umount -a -t nfs,nfs4 -f -l; "
        f"rm -rf {Path(FILE).parent} /rhev/data-center/mnt/*",
        check=True,
    )


# The mount options of the engine's storage connection, and the results without and with
# Port= in the file. A bare name comes before our proto=, which wins.
ENGINE = {
    "": ("rdma", "rdma"),
    "tcp": ("rdma", "rdma"),
    "rdma,port=20049": ("rdma", "rdma"),
    "proto=tcp": ("tcp", ""),
}


def test_what_the_engine_sends_decides_with_the_file(site: Site) -> None:
    for number, more in enumerate(("", "Port=20049\n")):
        site.write(local_path(NAMED), more=more)
        cases = [(version, engine) for version in ("3", "4.2") for engine in ENGINE]
        found = site.connect(
            *({"protocol_version": v, "mnt_options": engine} for v, engine in cases)
        )
        shown = {case: one.transport for case, one in zip(cases, found)}
        assert shown == {case: ENGINE[case[1]][number] for case in cases}


def test_the_first_of_two_sections_is_lost(site: Site, kernel: str) -> None:
    site.write(local_path(NAMED), local_path(OTHER))
    found = site.connect({}, {"connection": OTHER})
    # nfs-utils 2.8.3 has the correction.
    first = "tcp" if kernel == "6.1" else "rdma"
    assert [one.transport for one in found] == [first, "rdma"]


def test_a_bracket_in_a_section_ends_every_mount_of_the_host(site: Site) -> None:
    site.write(local_path("[fd00:99::1]:/srv/rdma"))
    (other,) = site.connect({"connection": OTHER})
    assert other.status in MOUNT_FAILED
