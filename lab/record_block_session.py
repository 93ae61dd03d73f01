# SPDX-License-Identifier: GPL-2.0-or-later
"""``make block-session``: write docs/block-session.md, an SRP LUN in a terminal.

A target (LIO) and a hypervisor, two guests, over Soft-RoCE: the LUN goes from the login
to a device that VDSM would offer. Each step is checked; if one fails, the document is
unchanged.
"""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stdout
from datetime import date
from pathlib import Path

from lab import installed_host, multipath
from lab.guest import Guest
from lab.problem import LabProblem
from lab.qemu import Wire
from lab.record_session import as_markdown
from lab.soft_roce import SoftRoce
from lab.srp_target import CM_PORT, SERVICE_GUID, SrpServer
from lab.story import COLUMNS, Story, expect, write_page

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "block-session.md"
_TARGET, _HOST = "10.99.0.1", "10.99.0.2"
_POLICY = f"""\
version: 1
block:
  srp:
    - name: array1
      id_ext: {SERVICE_GUID}
      ioc_guid: {SERVICE_GUID}
      dest: {_TARGET}:{CM_PORT}
      fast_io_fail_tmo: 5
"""
_OPENING = (
    "<!-- SPDX-License-Identifier: GPL-2.0-or-later -->\n"
    "# A terminal session with an SRP target\n\n"
    "Recorded on {when} by `make block-session`, at {columns} columns, in two virtual"
    " machines of [the lab](lab.md): Linux {kernel} with LIO (ib_srpt) and ib_srp, over"
    " Soft-RoCE by RDMA CM; multipathd of Debian, with the settings of VDSM's"
    " multipath.conf. There is no VDSM: the last column says what it would do, and the"
    " map's UUID is what it looks for ([block.md](block.md)).\n"
)


def record() -> str:
    """Run the session and return the document. Raises LabProblem."""
    wire = Wire(0)
    printed = io.StringIO()
    with (
        Guest("server", nics=[wire.a], memory_mb=768) as server,
        Guest("hypervisor", nics=[wire.b], systemd=True) as guest,
    ):
        _set_up(server, guest)
        kernel = guest.run("uname -r", check=True).stdout.strip()
        try:
            with redirect_stdout(printed):
                _tell(Story(guest))
        except LabProblem as problem:
            raise LabProblem(f"{printed.getvalue()}\n{problem}") from problem
    when = date.today().isoformat()
    opening = _OPENING.format(when=when, columns=COLUMNS, kernel=kernel)
    return "\n".join([opening, *as_markdown(printed.getvalue().splitlines()), ""])


def _set_up(server: Guest, guest: Guest) -> None:
    fabric = SoftRoce()
    server.wait_ready()
    fabric.bring_up(server, "eth0", [f"{_TARGET}/24"])
    target = SrpServer(server)
    target.add_disk(0, 256 << 20)
    target.serve("rxe0", 1, _TARGET)
    guest.wait_ready()
    fabric.bring_up(guest, "eth0", [f"{_HOST}/24"])
    multipath.start(guest)
    installed_host.install(guest)
    write = "mkdir -p /etc/ovirt-rdma; cat > /etc/ovirt-rdma/policy.yaml"
    guest.run(write, input=_POLICY, check=True)


def _tell(story: Story) -> None:
    story.chapter("A target in the policy.")
    story.shell("cat /etc/ovirt-rdma/policy.yaml")
    story.command("policy load")
    found = story.command("block check", expected=3)
    expect("not logged in" in found, "the target has no session")

    story.chapter("Login; a second one changes nothing.")
    story.command("block login")
    again = story.command("block login")
    expect("was logged in before" in again, "the session is there")
    until = "until ls /dev/mapper/3* > /dev/null 2>&1; do sleep 0.2; done"
    story.guest.run(until, check=True)

    story.chapter("The LUN, for multipath and for VDSM.")
    shown = story.command("block check")
    expect("as the policy says" in shown, "nothing is missing")
    story.shell("cat /sys/class/srp_remote_ports/port-*/fast_io_fail_tmo")
    uuid = story.shell("cat /sys/block/dm-0/dm/uuid")
    expect(uuid.startswith("mpath-3"), "VDSM looks at maps of multipath")
    maps = story.guest.run("multipath -ll", check=True).stdout
    expect("active ready running" in maps, "the path works")

    story.chapter("A logout while the LUN is in use, and after.")
    device = story.guest.run("echo /dev/mapper/3*", check=True).stdout.strip()
    story.shell(f"mkfs.ext4 -q {device} && mount {device} /mnt")
    refused = story.command("block logout array1", expected=4)
    expect("mounted at /mnt" in refused, "the user is named")
    story.shell("umount /mnt")
    story.command("block logout array1")
    left = story.command("block list")
    expect("has no session" in left, "the session is gone")


def main() -> int:
    """Write the document; return 0 if all steps succeeded."""
    print("Recording a session in two guests under QEMU; this takes some minutes ...")
    return write_page(DOCUMENT, record)


if __name__ == "__main__":
    sys.exit(main())
