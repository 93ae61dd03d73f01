# SPDX-License-Identifier: GPL-2.0-or-later
"""Show the story of ``make demo``: VDSM mounts an NFS export over RDMA.

If the server has no RDMA, the mount falls back to TCP or is refused. There are two
guests, an NFS server and a hypervisor, joined by a wire, with Soft-RoCE on both.
"""

from __future__ import annotations

import textwrap
import time
from dataclasses import dataclass

from lab.story import MARGIN, Story, expect, folded, say, speed
from lab.topology import Topology
from lab.vdsm_daemon import Outcome, VdsmDaemon, local_path
from ovirt_rdma.host.paths import LAUNCHER

REQUIRED = "/srv/data"
PREFERRED = "/srv/iso"
MEGABYTES = 32
MOUNT_FAILED = 477
# What stock VDSM gives to mount if the domain's options have rdma and port=20049. It
# tries for two minutes (docs/faults.md); the demo does not wait for that.
STOCK_OPTIONS = (
    "rdma,port=20049,soft,nosharecache,timeo=100,retrans=3,nfsvers=4,minorversion=2"
)
STOCK_S = 15
STOCK_PLACE = "/mnt/stock"

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
    """A story with a vdsmd; it ``started`` at this ``time.monotonic()``."""

    def __init__(self, lab: Topology, vdsmd: VdsmDaemon, started: float) -> None:
        super().__init__(lab.hypervisor)
        self.started = started
        self._lab = lab
        self._vdsmd = vdsmd

    def start_vdsmd(self) -> None:
        """Start vdsmd as systemd does; show the program and its syslog lines."""
        say("   vdsmd starts, its storage part (VDSM_SOURCE, or our strict double):")
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


@dataclass
class Proven:
    """What the story has seen, for the table at its end.

    ``after_s``: seconds from the start to the first export that is proven to be over
    RDMA. ``bytes_per_s``: written to it. ``fallback_s``, ``refusal_s``: how long VDSM
    took where the server had no RDMA, with prefer-rdma and require-rdma.
    """

    after_s: float = 0.0
    bytes_per_s: float = 0.0
    fallback_s: float = 0.0
    refusal_s: float = 0.0

    def table(self) -> str:
        """Return the table: a title and six lines."""
        rate = f"{self.bytes_per_s / 1e6:.0f} MB/s"
        rows = (
            ("WHAT WAS PROVEN", "OVIRT-RDMA", "STOCK VDSM"),
            ("over RDMA, by policy", f"{self.after_s:.0f} s from the start", "-"),
            ("transport, by the kernel", "3 of 3 signals", "not looked at"),
            ("data read back", f"{MEGABYTES} MiB equal, {rate}", "-"),
            (
                "no RDMA, prefer-rdma",
                f"TCP after {self.fallback_s:.1f} s",
                "no such choice",
            ),
            (
                "no RDMA, require-rdma",
                f"refused after {self.refusal_s:.1f} s",
                f"still tries after {STOCK_S} s",
            ),
            ("what is wrong, and the fix", "vdsm.log, nfs list", "mount.nfs failed"),
        )
        lines = (f"   {what:<28}{ours:<25}{stock}" for what, ours, stock in rows)
        return "\n" + "\n".join(lines)


def tell(story: NfsStory, lab: Topology) -> Proven:
    """Show the whole story, on guests that are up."""
    required = f"{lab.address}:{REQUIRED}"
    preferred = f"{lab.address}:{PREFERRED}"
    proven = Proven()
    story.chapter("The admin writes a policy and loads it; only these exports change.")
    say(textwrap.indent(POLICY, MARGIN).rstrip())
    story.command("policy load")
    story.command("enable")
    story.start_vdsmd()

    story.chapter("VDSM makes the storage connection; the kernel mounts over RDMA.")
    story.connect(REQUIRED, 0)
    story.mounted_over(local_path(required), "rdma")
    listed = story.command("nfs list --verbose")
    signals = ("proto=rdma", "xprt: rdma", f"{lab.address}:20049")
    expect(all(signal in listed for signal in signals), "all three signals say RDMA")
    proven.after_s = time.monotonic() - story.started

    story.chapter("Data is written and read back, and is the same.")
    proven.bytes_per_s = _write_and_read_back(story)
    story.disconnect(REQUIRED)

    story.chapter("The same server without RDMA: prefer-rdma falls back to TCP.")
    lab.nfs.restart(rdma_port=None)
    outcome = story.connect(PREFERRED, 0)
    fell_back = any("FALLING BACK TO TCP" in line for line in outcome.log)
    expect(fell_back, "vdsm.log reports the fallback")
    story.mounted_over(local_path(preferred), "tcp")
    listed = story.command("nfs list")
    expect("degraded" in listed, "the mount is marked degraded")
    proven.fallback_s = outcome.seconds

    story.chapter("require-rdma is refused in seconds, with the reason and a fix.")
    refused = story.connect(REQUIRED, MOUNT_FAILED)
    expect(refused.seconds < 10, "the refusal takes seconds")
    reason = any("fix:" in line and "refuses RDMA" in line for line in refused.log)
    expect(reason, "vdsm.log has the reason and a fix")
    proven.refusal_s = refused.seconds

    story.disconnect(PREFERRED)

    story.chapter("Beside it, stock: RDMA in the domain's options, and nothing else.")
    story.shell(
        f"mkdir -p {STOCK_PLACE}; timeout {STOCK_S} mount -t nfs -o {STOCK_OPTIONS}"
        f" {required} {STOCK_PLACE} || echo exit code $?"
    )
    return proven


def _write_and_read_back(story: NfsStory) -> float:
    """Return the bytes per second that were written."""
    place = f"{local_path(f'10.99.0.1:{REQUIRED}')}/disk.img"
    size = f"bs=1M count={MEGABYTES}"
    story.shell(f"dd if=/dev/urandom of=/run/disk.img {size} status=none")
    written = story.shell(
        f"dd if=/run/disk.img of={place} {size} conv=fsync 2>&1 | tail -n 1"
    )
    drop = "echo 3 > /proc/sys/vm/drop_caches"
    sums = story.shell(f"{drop}; sha256sum /run/disk.img {place}")
    digests = [line.split()[0] for line in sums.splitlines()]
    expect(len(digests) == 2 and digests[0] == digests[1], "the checksums are equal")
    return speed(written) * 1e6
