# SPDX-License-Identifier: GPL-2.0-or-later
"""Use ``ovirt-rdma-host`` in a guest as an admin does, and read the host's state.

The state is read with the host's own tools: ip, ethtool, nmcli and files.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import Any

from lab import installed_host
from lab.command import Result
from lab.guest import Guest
from ovirt_rdma.host.collect import software as units

# Netdevs by name: mode, MTU, and TSO as ethtool -k shows it.
Shape = tuple[str, int, str]
Shapes = Mapping[str, Shape]
REQUESTED = "off [requested on]"

JOURNAL = "/var/lib/ovirt-rdma/journal.json"
_POLICY = "/etc/ovirt-rdma/policy.yaml"
# The folders of our files. NetworkManager records when a profile was last active.
_KEPT = """
cd /etc
for folder in NetworkManager/system-connections modprobe.d modules-load.d; do
    find $folder -type f | sort | while read -r file; do
        stat -c '%n %a %u' $file
        sed '/^timestamp=/d' $file
    done
done
ls /etc/ovirt-rdma/follow-partitions 2>/dev/null
"""
# Under emulation the command's imports take longer than most of its work. So a process
# does them once, and each command is its child: its own main(), with its own stdout and
# stderr.
_IMPORTED = """
import importlib, json, os, pkgutil, sys
import ovirt_rdma.cli.host, ovirt_rdma.host
from ovirt_rdma.cli.host.main import main
for package in (ovirt_rdma.cli.host, ovirt_rdma.host):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
while True:
    with open("/run/command/words") as words:
        sys.argv[1:] = json.load(words)
    child = os.fork()
    if not child:
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"/run/command/{name}", os.O_WRONLY | os.O_CREAT), number)
        code = main()
        sys.stdout.flush()
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with open("/run/command/code", "w") as answer:
        print(code, file=answer)
"""
_RUN = """
rm -f /run/command/out /run/command/err
cat > /run/command/words
read -r code < /run/command/code
cat /run/command/out
cat /run/command/err >&2
exit $code
"""
_SHAPE = """
shape() {
    local mode=- mtu=- tso
    read -r mode < /sys/class/net/$1/mode
    read -r mtu < /sys/class/net/$1/mtu
    tso=$(ethtool -k $1 | sed -n 's/.*tx-tcp-segmentation: //p')
    echo "$1,$mode,$mtu,$tso"
} 2>/dev/null
"""


class PreparedHost:
    """The ``guest`` with our package, installed by :func:`installed_host.install`.

    ``netdevs`` are those that :meth:`shapes` reads, with their P_Key children.
    """

    def __init__(self, guest: Guest, netdevs: tuple[str, ...]) -> None:
        self.guest = guest
        self.netdevs = netdevs
        installed_host.install(guest)
        guest.run("mkdir /run/command; mkfifo /run/command/{words,code}", check=True)
        guest.start([sys.executable, "-c", _IMPORTED])
        # Under emulation systemd's first answer takes longer than our timeout.
        guest.run(units.COMMAND)

    def command(self, *words: str, timeout: float = 300) -> Result:
        """Run ``ovirt-rdma-host`` with the arguments ``words``."""
        return self.guest.run(_RUN, input=json.dumps(words), timeout=timeout)

    def done(self, *words: str) -> str:
        """Run it, check that it exits with 0 and no message, and return its result."""
        result = self.command(*words)
        assert (result.exit_code, complaints(result)) == (0, ""), result
        return result.stdout

    def load_policy(self, host: str) -> None:
        """Load a policy; ``host`` is the text below ``host:``."""
        text = f"version: 1\nhost:\n{host}\n"
        self.guest.run(f"cat > {_POLICY}", input=text, check=True)
        self.done("policy", "load", "-y")

    def said(self, line: str) -> str:
        """Run a shell line in the guest and return its output."""
        return self.guest.run(line, check=True).stdout.strip()

    def shapes(self) -> dict[str, Shape]:
        """Return mode, MTU and TSO of the netdevs, from the kernel and ethtool."""
        files = " ".join(f"/sys/class/net/{name}*" for name in self.netdevs)
        line = f"{_SHAPE}for path in {files}; do shape ${{path##*/}}; done"
        return _shapes(self.said(line))

    def becomes(self, wanted: Shapes) -> None:
        """Check that these netdevs become as ``wanted``, within 15 minutes."""
        line = f"{_SHAPE}for n in {' '.join(wanted)}; do shape $n; done"
        text = "\n".join(",".join(map(str, (n, *wanted[n]))) for n in wanted)
        loop = f"look() {{ {line}; }}; until now=$(look); "
        loop += '[ "$now" = "$0" ] || ((SECONDS > 900)); do sleep 0.2; done; '
        loop += 'echo "$now"'
        words = ["bash", "-c", loop, text]
        found = self.guest.run(words, timeout=1200, check=True).stdout
        assert _shapes(found) == dict(wanted)

    def kept(self) -> str:
        """Return everything that keeps settings over a boot, as text."""
        return self.guest.run(_KEPT).stdout

    def facts(self) -> dict[str, Any]:
        """Return the host's facts without values that change by themselves.

        These are the time; counters and their growth; modules and their effects,
        because a loaded module stays; units, because systemd may be too slow under
        emulation; and the number of the queue pair in the address of an IPoIB netdev.
        """
        found: dict[str, Any] = json.loads(self.done("facts", "-o", "json"))
        for name in ("uptime_s", "modules", "cm_ids", "problems", "activity"):
            found.pop(name)
        found["software"].pop("units")
        for netdev in found["netdevs"]:
            netdev["address"] = netdev["address"][-len("00:02:c9:03:00:ab:c0:01") :]
        return found


def _shapes(text: str) -> dict[str, Shape]:
    cells = [line.split(",") for line in text.splitlines()]
    return {
        name: (mode, int(mtu) if mtu.isdecimal() else -1, tso)
        for name, mode, mtu, tso in cells
    }


def complaints(result: Result) -> str:
    """Return the lines of a command's stderr, without those about tools that were too
    slow: on a busy machine an emulated guest's are. Tests that need these tools fail.
    """
    slow = re.compile("no answer within|has timed out before")
    lines = result.stderr.splitlines(keepends=True)
    return "".join(line for line in lines if not slow.search(line))


def outcomes(result: Result) -> dict[str, str]:
    """Return the outcome of each step, by its id."""
    line = re.compile(r"^(\S+(?: \S+)?) {2,}([A-Z0-9-]+/\S+) ", re.MULTILINE)
    return {step: outcome for outcome, step in line.findall(result.stdout)}
