# SPDX-License-Identifier: GPL-2.0-or-later
"""``make demo``: the main job on a real kernel, told step by step.

Two guests: an NFS server and a hypervisor, joined by a wire, with Soft-RoCE on
both. Every line that starts with ``$`` was run; everything below it is what came
back. Each step is checked, and the exit code is 0 only if all went as told.
"""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable

from lab.command import Result
from lab.problem import LabProblem
from lab.topology import Topology, two_guests
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


class Story:
    """Prints what happens; raises LabProblem when it is not what was told."""

    def __init__(self, lab: Topology, vdsmd: VdsmDaemon) -> None:
        self._lab = lab
        self._vdsmd = vdsmd
        self._chapter = 0

    def chapter(self, text: str) -> None:
        """Begin a chapter."""
        self._chapter += 1
        print(f"\n{self._chapter}. {text}", flush=True)

    def command(self, line: str, expected: int = 0) -> Result:
        """Run ``ovirt-rdma-host`` with the words of ``line``; show what it says."""
        result = self._vdsmd.command(*line.split())
        self._show(f"ovirt-rdma-host {line}", result)
        expect(result.exit_code == expected, f"exit code is {expected}")
        return result

    def shell(self, line: str) -> str:
        """Run a line on the hypervisor; show and return what it prints."""
        result = self._lab.hypervisor.run(line, check=True)
        self._show(line, result)
        return result.stdout

    def start_vdsmd(self) -> None:
        """Start vdsmd as systemd does; show the program and what it says."""
        print("   vdsmd starts: ExecStart, daemonAdapter, our launcher, VDSM's main()")
        print("   (storage part only: VDSM_SOURCE, or this project's strict double)")
        self._vdsmd.start()
        about = self._vdsmd.about()
        print(f"     {about.program} runs as uid {about.uid}; syslog:")
        for text in self._vdsmd.syslog():
            _indented(text, "     ")
        expect(about.program == LAUNCHER, "vdsmd was started by the launcher")

    def connect(self, path: str, status: int) -> Outcome:
        """Let VDSM connect an export; show the status and vdsm.log."""
        export = f"{self._lab.address}:{path}"
        outcome = self._vdsmd.connect({"connection": export})
        code = outcome.statuses[0]
        meaning = {0: "connected", MOUNT_FAILED: "mount failed"}.get(code, "other")
        print(f"   engine asks VDSM to connect {export}")
        print(
            f"     status {code} ({meaning}) after {outcome.seconds:.1f} s; vdsm.log:"
        )
        for text in outcome.log:
            _indented(text, "     ")
        expect(code == status, f"the engine gets status {status}")
        return outcome

    def disconnect(self, path: str) -> None:
        """Let VDSM disconnect an export."""
        export = f"{self._lab.address}:{path}"
        statuses = self._vdsmd.disconnect({"connection": export}).statuses
        expect(statuses == [0], f"{export} is disconnected")

    @staticmethod
    def _show(line: str, result: Result) -> None:
        print(f"   $ {line}")
        for text in (result.stdout + result.stderr).splitlines():
            print(f"     {text}")


def expect(fact: bool, what: str) -> None:
    """Raise LabProblem unless ``fact``."""
    if not fact:
        raise LabProblem(f"expected that {what}, and it is not so")


def tell(story: Story, lab: Topology) -> None:
    """The whole story, over guests that are up."""
    required = f"{lab.address}:{REQUIRED}"
    story.chapter("The admin writes a policy and loads it; only these exports change.")
    print(textwrap.indent(POLICY, "     "), end="")
    story.command("policy load")
    story.command("enable")
    story.command(f"policy show --export {required}")
    story.start_vdsmd()

    story.chapter("Is this host, is this server ready? And what will VDSM mount?")
    story.command(f"nfs check {required}")
    story.command(f"nfs mount-options {required} --nfs-version 4.2")

    story.chapter("VDSM makes the storage connection; the kernel mounts over RDMA.")
    story.connect(REQUIRED, 0)
    _kernel_says(story, REQUIRED, "rdma")
    cm_ids = story.shell("rdma resource show cm_id | grep rpcrdma")
    expect("20049" in cm_ids and "CONNECT" in cm_ids, "there is an RDMA CM id")

    story.chapter("Data goes out and comes back, and is the same.")
    _write_and_read_back(story)

    story.chapter("All mounts of the host, proven by independent kernel signals.")
    story.command("nfs list --verbose")
    story.disconnect(REQUIRED)

    story.chapter("The same server without RDMA: prefer-rdma falls back, loudly.")
    lab.nfs.restart(rdma_port=None)
    told = story.connect(PREFERRED, 0)
    expect(any("FALLING BACK TO TCP" in line for line in told.log), "it is loud")
    _kernel_says(story, PREFERRED, "tcp")
    listed = story.command("nfs list")
    expect("degraded" in listed.stdout, "the mount is marked degraded")

    story.chapter("And require-rdma is refused in seconds, with the reason and a fix.")
    refused = story.connect(REQUIRED, MOUNT_FAILED)
    expect(refused.seconds < 10, "the refusal takes seconds")
    story.command(f"nfs check {required}", expected=3)
    story.disconnect(PREFERRED)


def _kernel_says(story: Story, path: str, transport: str) -> None:
    place = local_path(f"10.99.0.1:{path}")
    mount = story.shell(f"grep -F {place} /proc/self/mountinfo")
    expect(f"proto={transport}," in mount, f"mountinfo says proto={transport}")
    stats = story.shell(
        f"grep -F -A 20 'mounted on {place} ' /proc/self/mountstats | grep xprt:"
    )
    expect(f"xprt:\t{transport} " in stats, f"mountstats says xprt: {transport}")


def _write_and_read_back(story: Story) -> None:
    place = f"{local_path(f'10.99.0.1:{REQUIRED}')}/disk.img"
    size = f"bs=1M count={MEGABYTES}"
    story.shell(f"dd if=/dev/urandom of=/run/disk.img {size} status=none")
    story.shell(f"dd if=/run/disk.img of={place} {size} conv=fsync 2>&1 | tail -n 1")
    story.shell("echo 3 > /proc/sys/vm/drop_caches")
    sums = story.shell(f"sha256sum /run/disk.img {place}")
    digests = [line.split()[0] for line in sums.splitlines()]
    expect(len(digests) == 2 and digests[0] == digests[1], "the checksums are equal")


def _indented(text: str, margin: str) -> None:
    print(
        textwrap.fill(text, 96, initial_indent=margin, subsequent_indent=margin + "  ")
    )


def main() -> int:
    """Run the demo; 0 if everything went as told."""
    started = time.monotonic()
    say: Callable[[str], None] = lambda text: print(text, flush=True)  # noqa: E731
    say("Starting an NFS server and a hypervisor: two guests under QEMU, emulated ...")
    try:
        with two_guests() as lab:
            lab.nfs.add_export(PREFERRED)
            vdsmd = VdsmDaemon(lab.hypervisor)
            vdsmd.write_policy(POLICY)
            say(f"Both are up after {time.monotonic() - started:.0f} s.")
            tell(Story(lab, vdsmd), lab)
    except LabProblem as problem:
        print(f"\ndemo: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: stopped", file=sys.stderr)
        return 130
    say(f"\nAll steps went as told, in {time.monotonic() - started:.0f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
