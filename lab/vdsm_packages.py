# SPDX-License-Identifier: GPL-2.0-or-later
"""Install VDSM's package and ours in a hypervisor guest, for Debian's own Python.

They are copies on the guest's disk and belong to root: tests can damage and remove
them, and vdsmd (uid 36) can read them wherever the checkout is. VDSM is the strict
double in ``tests/``, or the source tree of ``VDSM_SOURCE``; its vdsmd.py has the lab's
main() instead of its own (lab/vdsm_daemon_main.py).
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from lab import installed_host
from lab.guest import Guest
from lab.guest_archive import GuestArchive

CHECKOUT = Path(__file__).resolve().parents[1]
VDSM = "/usr/local/lib/vdsm-python"
UNITS = "/usr/lib/systemd/system"
UNIT = f"{UNITS}/vdsmd.service"
LIBEXEC = "/usr/libexec/vdsm"
SOCKET = "/run/vdsm/svdsm.sock"
_ADDITION = "\n\nfrom vdsm_daemon_main import main  # noqa: E402, F401, F811\n"
# A real source imports these; they are in the tests' virtual environment.
_LIBRARIES = ("decorator", "six")

# Run in tests/, with a checkout of VDSM and an empty folder for its packages.
BUILD_VDSM = "/usr/bin/python3 -m support.storage.vdsm_source"

_SET_UP = f"""
set -e
rm -rf {VDSM}
tar -x -C /
echo {VDSM} > /usr/lib/python3/dist-packages/vdsm.pth
for folder in /var/lib/vdsm /var/log/vdsm /run/vdsm /rhev/data-center{{,/mnt}}; do
    install -d -o 36 -g 36 "$folder"
done
if [ -n "$2" ]; then
    mkdir /run/source
    cd "$1/tests"
    {BUILD_VDSM} "$2" /run/source
    cp -RL /run/source/. {VDSM}
    rm -rf /run/source
    echo '{_ADDITION}' >> {VDSM}/vdsm/vdsmd.py
fi
chmod -R a+rX {VDSM}
[ -e /dev/log ] || busybox syslogd -O /var/log/messages
if [ -d /run/systemd/system ]; then
    if selinuxenabled 2> /dev/null; then
        restorecon -RF {LIBEXEC} {VDSM} /usr/lib/systemd/system /var/l*/vdsm /run/vdsm
    fi
    systemctl daemon-reload
    systemctl start supervdsmd
elif ! [ -e {SOCKET} ]; then
    setsid {LIBEXEC}/supervdsmd </dev/null >/var/log/vdsm/supervdsm.log 2>&1 &
fi
"""


def install(guest: Guest) -> None:
    """Install both in ``guest``, replacing earlier copies, and start what vdsmd needs:
    supervdsmd and a syslog (``/var/log/messages``). Raises CommandFailed.
    """
    source = os.environ.get("VDSM_SOURCE", "")
    installed_host.install(guest)
    guest.run(
        ["bash", "-c", _SET_UP, "install", str(CHECKOUT), source and _absolute(source)],
        input=_archive(with_double=not source),
        timeout=300,
        check=True,
    )


def _absolute(folder: str) -> str:
    return str(Path(folder).resolve())


def _archive(with_double: bool) -> bytes:
    """Return a tar archive, for ``/``, of all files except VDSM's source."""
    archive = GuestArchive()
    for path in (CHECKOUT / "lab/vdsm_host").iterdir():
        if path.suffix == ".service":
            archive.add(path.read_bytes(), f"{UNITS}/{path.name}")
        else:
            archive.add(path.read_bytes(), f"{LIBEXEC}/{path.name}", 0o755)
    tests = CHECKOUT / "tests"
    if with_double:
        double = tests / "vdsm_double"
        archive.add_modules(double, VDSM)
        # Once more, with the addition: the last member of a name wins.
        text = (double / "vdsm/vdsmd.py").read_text() + _ADDITION
        archive.add(text.encode(), f"{VDSM}/vdsm/vdsmd.py")
    else:
        for name in _LIBRARIES:
            _add_library(archive, name)
    for path in (
        CHECKOUT / "lab/vdsm_daemon_main.py",
        tests / "support/storage/vdsm_access.py",
    ):
        archive.add(path.read_bytes(), f"{VDSM}/{path.name}")
    return archive.content()


def _add_library(archive: GuestArchive, name: str) -> None:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise RuntimeError(f"VDSM_SOURCE: importing VDSM needs {name}: pip install it")
    origin = Path(spec.origin)
    if origin.name == "__init__.py":
        archive.add_modules(origin.parent, f"{VDSM}/{name}")
    else:
        archive.add(origin.read_bytes(), f"{VDSM}/{origin.name}")
