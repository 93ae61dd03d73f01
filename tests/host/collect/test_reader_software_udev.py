# SPDX-License-Identifier: GPL-2.0-or-later
"""Lines of udev rules that set a transport mode."""

from __future__ import annotations

import pytest

from ovirt_rdma.host.collect.software import read_udev_lines
from ovirt_rdma.host.facts.model import UdevLine
from ovirt_rdma.host.system.tree import FileTree

pytestmark = pytest.mark.hypervisor

ADDED = 'ACTION=="add", SUBSYSTEM=="net"'
MODE = f'{ADDED}, ATTR{{type}}=="32", ATTR{{mode}}="connected"'


def udev_lines(host, problems=None):
    """The lines that are read from the host's rules."""
    return read_udev_lines(FileTree(host.path), [] if problems is None else problems)


@pytest.mark.parametrize(
    "rule",
    [
        MODE,
        'KERNEL=="ib*", ATTR{mode}:="connected"',
        f'{ADDED}, ATTR{{mode}} = e"connected\\n"',
    ],
)
def test_rules_that_set_a_mode(host, rule):
    host.udev_rules("x", "", rule)
    assert udev_lines(host) == (UdevLine("/etc/udev/rules.d/x.rules", 2, rule),)


@pytest.mark.parametrize(
    "rule",
    [
        f'{ADDED}, ATTR{{mode}}=="connected", NAME="ib0"',
        f'{ADDED}, ATTR{{mode}}!="connected"',
        f'{ADDED}, ATTR{{mtu}}="9000"',
        'SUBSYSTEM=="block", ATTR{mode}="1"',
        'SUBSYSTEM!="net", ATTR{mode}="1"',
        f'{ADDED}, ATTR{{queue/mode}}="x"',
        f'{ADDED}, ENV{{mode}}="connected"',
        f"#{MODE}",
        "ATTR{mode}",
    ],
)
def test_rules_that_do_not(host, rule):
    host.udev_rules("x", rule)
    assert udev_lines(host) == ()


def test_places_order_and_folders(host):
    host.udev_rules("80-b", MODE, folder="/usr/lib")
    host.udev_rules("80-b", "# off", MODE.replace("connected", "datagram"))
    host.udev_rules("70-a", "", MODE, folder="/run")
    host.udev_rules("90-c", MODE, folder="/lib")
    host.write("/etc/udev/rules.d/60-x.rules.bak", MODE)
    (host.path / "etc/udev/rules.d/90-c.rules").symlink_to("/dev/null")
    problems: list[str] = []
    assert udev_lines(host, problems) == (
        UdevLine("/run/udev/rules.d/70-a.rules", 2, MODE),
        UdevLine(
            "/etc/udev/rules.d/80-b.rules", 2, MODE.replace("connected", "datagram")
        ),
    )
    assert problems == []


def test_a_rule_over_several_lines_is_at_its_first(host):
    host.udev_rules(
        "x", 'A="1", \\', '  B="2"', "", 'C="3", \\', 'ATTR{mode}="datagram"'
    )
    (line,) = udev_lines(host)
    assert (line.line, line.text) == (4, 'C="3", ATTR{mode}="datagram"')


def test_a_file_that_cannot_be_read_hides_no_other(host):
    host.unreadable("/etc/udev/rules.d/10-x.rules")
    host.write("/etc/udev/rules.d/20-y.rules", b"\xff\x00\n" + MODE.encode() + b"\n")
    problems: list[str] = []
    assert udev_lines(host, problems) == (
        UdevLine("/etc/udev/rules.d/20-y.rules", 2, MODE),
    )
    assert problems == ["/etc/udev/rules.d/10-x.rules is a folder, so it is ignored"]
