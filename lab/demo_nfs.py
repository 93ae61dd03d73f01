# SPDX-License-Identifier: GPL-2.0-or-later
"""Show the first story of ``make demo``: VDSM mounts an NFS export over RDMA.

If the server has no RDMA, the mount falls back to TCP or is refused. There are two
guests, an NFS server and a hypervisor, joined by a wire, with Soft-RoCE on both.
"""

from __future__ import annotations

import textwrap

from lab.story import MARGIN, Story, expect, folded, say
from lab.topology import Topology
from lab.vdsm_daemon import Outcome, VdsmDaemon, local_path
from ovirt_rdma.host.paths import LAUNCHER

REQUIRED = "/srv/data"
PREFERRED = "/srv/iso"
MEGABYTES = 32
MOUNT_FAILED = 477

POLICY = """\
version: 1
nfs:
  defaults:
    readiness_timeout: 10    # emulated machines are slow; real ones need 2 s or less
  rules:
    - name: vm-store
      server: 10.99.0.0/24
      path: /srv/data
      transport: require-rdma
      options: rsize=1048576,wsize=1048576
    - name: iso
      server: 10.99.0.1
      path: /srv/iso
      transport: prefer-rdma
"""


class NfsStory(Story):
    """A story with a vdsmd."""

    def __init__(self, lab: Topology, vdsmd: VdsmDaemon) -> None:
        super().__init__(lab.hypervisor)
        self._lab = lab
        self._vdsmd = vdsmd

    def start_vdsmd(self) -> None:
        """Start vdsmd as systemd does; show the program and its syslog lines."""
        say("   vdsmd starts: ExecStart, daemonAdapter, our launcher, VDSM's main()")
        say("   (only its storage part: VDSM_SOURCE, or this project's strict double)")
        self._vdsmd.start()
        about = self._vdsmd.about()
        say(f"     {about.program} runs as uid {about.uid}; syslog:")
        for text in self._vdsmd.syslog():
            folded(text)
        expect(about.program == LAUNCHER, "vdsmd was started by the launcher")

    def connect(self, path: str, status: int) -> Outcome:
        """Let VDSM connect an export; show the status and vdsm.log."""
        export = f"{self._lab.address}:{path}"
        outcome = self._vdsmd.connect({"connection": export})
        code = outcome.statuses[0]
        meaning = {0: "connected", MOUNT_FAILED: "mount failed"}.get(code, "other")
        say(f"   engine asks VDSM to connect {export}")
        say(f"     status {code} ({meaning}) after {outcome.seconds:.1f} s; vdsm.log:")
        for text in outcome.log:
            folded(text)
        expect(code == status, f"the engine gets status {status}")
        return outcome

    def disconnect(self, path: str) -> None:
        """Let VDSM disconnect an export."""
        export = f"{self._lab.address}:{path}"
        statuses = self._vdsmd.disconnect({"connection": export}).statuses
        expect(statuses == [0], f"{export} is disconnected")


def tell(story: NfsStory, lab: Topology) -> None:
    """Show the whole story, on guests that are up."""
    required = f"{lab.address}:{REQUIRED}"
    story.chapter("The admin writes a policy and loads it; only these exports change.")
    say(textwrap.indent(POLICY, MARGIN).rstrip())
    story.command("policy load")
    story.command("enable")
    story.command(f"policy show --export {required}")
    story.start_vdsmd()

    story.chapter("Are this host and the server ready, and what will VDSM mount?")
    story.command(f"nfs check {required}")
    story.command(f"nfs mount-options {required} --nfs-version 4.2")

    story.chapter("VDSM makes the storage connection; the kernel mounts over RDMA.")
    story.connect(REQUIRED, 0)
    story.mounted_over(local_path(required), "rdma")
    cm_ids = story.shell("rdma resource show cm_id | grep rpcrdma")
    expect("20049" in cm_ids and "CONNECT" in cm_ids, "there is an RDMA CM id")

    story.chapter("Data is written and read back, and is the same.")
    _write_and_read_back(story)

    story.chapter("All mounts of the host, proven by independent kernel signals.")
    story.command("nfs list --verbose")
    story.disconnect(REQUIRED)

    story.chapter("The same server without RDMA: prefer-rdma falls back to TCP.")
    lab.nfs.restart(rdma_port=None)
    outcome = story.connect(PREFERRED, 0)
    fell_back = any("FALLING BACK TO TCP" in line for line in outcome.log)
    expect(fell_back, "vdsm.log reports the fallback")
    story.mounted_over(local_path(f"{lab.address}:{PREFERRED}"), "tcp")
    listed = story.command("nfs list")
    expect("degraded" in listed, "the mount is marked degraded")

    story.chapter("require-rdma is refused in seconds, with the reason and a fix.")
    refused = story.connect(REQUIRED, MOUNT_FAILED)
    expect(refused.seconds < 10, "the refusal takes seconds")
    story.command(f"nfs check {required}", expected=3)
    story.disconnect(PREFERRED)


def _write_and_read_back(story: NfsStory) -> None:
    place = f"{local_path(f'10.99.0.1:{REQUIRED}')}/disk.img"
    size = f"bs=1M count={MEGABYTES}"
    story.shell(f"dd if=/dev/urandom of=/run/disk.img {size} status=none")
    story.shell(f"dd if=/run/disk.img of={place} {size} conv=fsync 2>&1 | tail -n 1")
    story.shell("echo 3 > /proc/sys/vm/drop_caches")
    sums = story.shell(f"sha256sum /run/disk.img {place}")
    digests = [line.split()[0] for line in sums.splitlines()]
    expect(len(digests) == 2 and digests[0] == digests[1], "the checksums are equal")
