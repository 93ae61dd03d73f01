# SPDX-License-Identifier: GPL-2.0-or-later
"""Install ovirt-rdma in a guest as the package ``ovirt-rdma-host`` does, and
``ovirt-rdma-portal``.

Command, systemd units, udev rules, tmpfiles.d, VDSM hooks and the launcher have the
paths of the package (``make install-host-files``). Nothing is enabled or started.
"""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from pathlib import Path

from lab.guest import Guest
from lab.guest_archive import GuestArchive
from lab.problem import LabProblem

COMMAND = "/usr/bin/ovirt-rdma-host"
HOOKS = "/usr/libexec/vdsm/hooks"
_CHECKOUT = Path(__file__).resolve().parents[1]
LIBRARY = "/usr/lib/python3/dist-packages/ovirt_rdma"
_ROOMS = ("cli", "host", "storage", "vdsm_hooks")
# As pip writes it for the package.
_PROGRAM = """\
#!/usr/bin/python3
import sys
from ovirt_rdma.cli.host.main import main
if __name__ == '__main__':
    sys.exit(main())
"""
# The install scripts of our package and of VDSM's.
_SET_UP = f"""
set -e
rm -rf {LIBRARY} {HOOKS}/*/50_ovirt_rdma
tar -x -C /
grep -q ^kvm: /etc/group || echo kvm:x:36: >> /etc/group
grep -q ^vdsm: /etc/passwd || echo vdsm:x:36:36::/:/sbin/nologin >> /etc/passwd
install -d /etc/ovirt-rdma /var/lib/ovirt-rdma
grep ^d /usr/lib/tmpfiles.d/ovirt-rdma.conf | while read -r _ path mode user group _; do
    install -d -m "$mode" -o "$user" -g "$group" "$path"
done
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    udevadm control --reload
fi
"""


def install(guest: Guest, portal: bool = False) -> None:
    """Install the checkout's current files in ``guest``; a second call is an update.

    User vdsm and group kvm (36) exist afterwards. Raises CommandFailed, and LabProblem
    if the files cannot be collected.
    """
    guest.run(_SET_UP, input=_archive(portal), check=True)


def _archive(portal: bool) -> bytes:
    archive = GuestArchive()
    for room in (*_ROOMS, "engine_sdk_tools") if portal else _ROOMS:
        archive.add_modules(_CHECKOUT / room, f"{LIBRARY}/{room}")
    archive.add(_PROGRAM.encode(), COMMAND, 0o755)
    with tempfile.TemporaryDirectory() as folder:
        command = ["make", "-s", "-C", str(_CHECKOUT), "install-host-files"]
        command += ["install-portal-files"] if portal else []
        done = subprocess.run(
            [*command, f"DESTDIR={folder}"], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise LabProblem(f"{shlex.join(command)} failed: {done.stderr.strip()}")
        archive.add_tree(Path(folder))
    return archive.content()
