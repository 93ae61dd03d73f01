# SPDX-License-Identifier: GPL-2.0-or-later
"""The kind VF, on a PF whose files and netlink behave as the kernel's.

drivers/pci/iov.c: sriov_numvfs is changed from 0 and to 0 only (EBUSY). pci-driver.c,
pci_device_can_probe(): while the PF's sriov_drivers_autoprobe is 0, no driver is bound
to a VF, neither when it is made nor by a write to drivers_probe, which succeeds
(base/bus.c, drivers_probe_store), unless the VF has a driver_override; that is shown
as "(null)" if there is none (pci-sysfs.c). rtnetlink.c and mlx5's ib_virt.c: ``ip link
set vf``; a driver reads the GUIDs when it is bound. A driver may enable fewer VFs than
asked, and the write succeeds (bnxt_sriov_enable() in broadcom/bnxt/bnxt_sriov.c).
"""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from itertools import count

import pytest
from support.host.effects_host import MemoryJournal, Told, apply_steps, recover
from support.killed import Killed
from support.problems import problem

from ovirt_rdma.host.changes import boot
from ovirt_rdma.host.changes.journal import Journal, Ledger, Run
from ovirt_rdma.host.changes.kinds import virtual_function
from ovirt_rdma.host.changes.kinds.kind import AtomicChange
from ovirt_rdma.host.changes.kinds.registry import HostEffects, kind_of
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.rules.base import SYSFS, VF, Change, Step

pytestmark = pytest.mark.hypervisor

PF = "0000:5e:00.0"
DEVICES = "sys/bus/pci/devices"
ZERO = "0000:0000:0000:0000"
GUEST_DRIVERS = ("vfio-pci", "mlx5_vfio_pci", "hisi_acc_vfio_pci")
NODE, PORT = "0e11:2233:4455:6600", "0e11:2233:4455:6601"


class Kernel:
    """A PF ``ib0``, below ``root``, whose driver enables up to ``most`` VFs."""

    def __init__(self, root) -> None:
        self.root = root
        self.most = 8
        self.guids: dict[int, list[str]] = {}
        self.states: dict[int, str] = {}
        self.seen: dict[int, list[str]] = {}  # the GUIDs that a VF's driver read
        pf = root / "sys/devices/pci0000:5e" / PF
        pf.mkdir(parents=True)
        (root / DEVICES).mkdir(parents=True)
        (root / DEVICES / PF).symlink_to(pf)
        (root / "sys/class/net/ib0").mkdir(parents=True)
        (root / "run/ovirt-rdma").mkdir(parents=True)
        (root / "sys/class/net/ib0/device").symlink_to(pf)
        self.pf = pf
        (pf / "sriov_numvfs").write_text("0\n")
        (pf / "sriov_drivers_autoprobe").write_text("1\n")
        for driver in ("mlx5_core", *GUEST_DRIVERS):
            (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True)

    @property
    def effects(self) -> HostEffects:
        return HostEffects(self.root, self.run, write=self.write)

    def killed_at(self, last: int) -> HostEffects:
        """Return effects of a process that gets SIGKILL before it does the effect
        number ``last``, from 0; it does none after that.
        """
        effects = iter(range(last))

        def counted(effect, *what):
            if next(effects, None) is None:
                raise Killed
            return effect(*what)

        return HostEffects(
            self.root,
            lambda argv: counted(self.run, argv) if "set" in argv else self.run(argv),
            write=lambda *what: counted(self.write, *what),
        )

    def left(self) -> tuple[str, dict[int, tuple[str, ...]]]:
        """Return what a kill may leave: the PF's autoprobe, and of each VF the driver,
        its override and its GUIDs.
        """
        vfs = {}
        for number in range(int((self.pf / "sriov_numvfs").read_text())):
            driver = (self.folder(number) / "driver").resolve().name
            override = (self.folder(number) / "driver_override").read_text().strip()
            vfs[number] = driver, override, *self.guids[number]
        return (self.pf / "sriov_drivers_autoprobe").read_text().strip(), vfs

    def address(self, number: int) -> str:
        return f"0000:5e:00.{number + 1}"

    def folder(self, number: int):
        return self.root / DEVICES / self.address(number)

    def bind(self, number: int, driver: str = "mlx5_core") -> None:
        link = self.folder(number) / "driver"
        link.symlink_to(self.root / "sys/bus/pci/drivers" / driver)
        self.seen[number] = list(self.guids[number])

    def probe(self, number: int) -> None:
        override = (self.folder(number) / "driver_override").read_text().strip()
        autoprobe = (self.pf / "sriov_drivers_autoprobe").read_text().strip()
        if override != "(null)" or autoprobe == "1":
            driver = "mlx5_core" if override == "(null)" else override
            if (self.root / "sys/bus/pci/drivers" / driver).is_dir():
                self.bind(number, driver)

    def write(self, path, data: bytes) -> None:
        text = data.decode().strip()
        if path.name == "sriov_numvfs":
            text = str(min(int(text), self.most))
            self._number(int(text))
        elif path.name == "driver_override":
            path.write_text(f"{text or '(null)'}\n")
        elif path.name == "drivers_probe":
            self.probe(int(text[-1]) - 1)
        elif path.name == "unbind":
            path.parent.unlink()
            return
        path.write_text(f"{text}\n") if path.name.startswith("sriov") else None

    def _number(self, wanted: int) -> None:
        present = int((self.pf / "sriov_numvfs").read_text())
        if present and wanted:
            raise OSError(errno.EBUSY, "Device or resource busy")
        for number in range(present):
            driver = (self.folder(number) / "driver").resolve().name
            assert driver not in GUEST_DRIVERS, "hangs"
            (self.folder(number) / "driver").unlink(missing_ok=True)
            (self.folder(number) / "driver_override").unlink()
            self.folder(number).rmdir()
            (self.pf / f"virtfn{number}").unlink()
        self.guids = {n: [ZERO, ZERO] for n in range(wanted)}
        self.states = dict.fromkeys(range(wanted), "auto")
        for number in range(wanted):
            self.folder(number).mkdir()
            (self.folder(number) / "driver_override").write_text("(null)\n")
            (self.pf / f"virtfn{number}").symlink_to(self.folder(number))
            self.probe(number)

    def run(self, argv) -> str:
        words = list(argv)
        if words[:5] == ["ip", "-j", "link", "show", "dev"]:
            return json.dumps([{"ifname": "ib0", "vfinfo_list": self._shown()}])
        assert words[:6] == ["ip", "link", "set", "dev", "ib0", "vf"], words
        number, name, value = int(words[6]), words[7], words[8]
        if name == "state":
            self.states[number] = value
        else:
            digits = value.replace(":", "")
            group = ":".join(digits[at : at + 4] for at in range(0, 16, 4))
            self.guids[number][name == "port_guid"] = group
        return ""

    def _shown(self) -> list[dict]:
        def in_bytes(guid):
            digits = guid.replace(":", "")
            return ":".join(digits[at : at + 2] for at in range(0, 16, 2))

        return [
            {
                "vf": number,
                "node guid": in_bytes(node),
                "port guid": in_bytes(port),
                "link_state": self.states[number],
            }
            for number, (node, port) in self.guids.items()
        ]


@pytest.fixture
def kernel(tmp_path) -> Kernel:
    return Kernel(tmp_path)


def act(change: Change, *before) -> AtomicChange:
    changes = tuple(replace(change, before=value) for value in before) or (change,)
    return AtomicChange("VF-01/mlx5_0", "live", changes, lasting=False)


def number(count: int) -> Change:
    return Change(VF, PF, "0", str(count), "number")


GUIDS = Change(VF, PF, None, f"1={NODE}/{PORT}", "guids")
STATES = Change(VF, PF, None, "0=disable 1=disable", "link-states")
DRIVERS = Change(VF, PF, None, "1=mlx5_core", "drivers")
# As VF-02 has it for a VF with a driver.
REBOUND = (
    replace(DRIVERS, before=DRIVERS.after),
    replace(GUIDS, before=f"1={ZERO}/{ZERO}"),
)


def test_vfs_are_made_without_a_driver(kernel):
    assert kernel.effects.read(number(2)).value == "0"
    kernel.effects.do(act(number(2)))
    assert kernel.effects.read(number(2)).value == "2"
    assert not (kernel.folder(0) / "driver").exists()
    assert (kernel.pf / "sriov_drivers_autoprobe").read_text() == "1\n"


def test_set_read_and_undone(kernel):
    effects = kernel.effects
    assert effects.read(GUIDS).value is None
    assert effects.gone(act(GUIDS))
    effects.do(act(number(2)))
    for change in (GUIDS, STATES, DRIVERS):
        effects.do(act(change))
        assert effects.read(change).value == change.after
    assert kernel.seen == {1: [NODE, PORT]}
    assert kernel.guids[0] == [ZERO, ZERO]
    for change in (DRIVERS, STATES, GUIDS):
        effects.undo(act(change, None))
    assert kernel.guids == {0: [ZERO, ZERO], 1: [ZERO, ZERO]}
    assert set(kernel.states.values()) == {"auto"}
    assert not (kernel.folder(1) / "driver").exists()
    effects.undo(act(number(2), "0"))
    assert effects.read(number(2)).value == "0"


def test_undo_restores_what_was_there(kernel):
    effects = kernel.effects
    kernel.write(kernel.pf / "sriov_numvfs", b"2\n")
    earlier = [NODE, "0e11:2233:4455:6602"]
    kernel.guids[1] = list(earlier)
    before = effects.read(GUIDS).value
    effects.do(act(GUIDS))
    assert kernel.seen[1] == [NODE, PORT]  # its driver was bound again
    effects.undo(act(GUIDS, before))
    assert kernel.guids[1] == kernel.seen[1] == earlier


@pytest.mark.parametrize("driver", GUEST_DRIVERS)
@pytest.mark.parametrize(
    "change", [GUIDS, Change(VF, PF, None, "1=-", "drivers"), number(0)]
)
def test_a_vf_of_a_virtual_machine_is_left(kernel, change, driver):
    effects = kernel.effects
    effects.do(act(number(2)))
    kernel.bind(1, driver)
    with problem("vf-in-virtual-machine"):
        effects.do(act(change))
    with problem("vf-in-virtual-machine"):
        effects.undo(act(number(2), "0"))
    assert kernel.guids[1] == [ZERO, ZERO]


def test_a_driver_that_is_not_bound(kernel):
    kernel.effects.do(act(number(2)))
    other = Change(VF, PF, None, "0=mlx4_core", "drivers")
    with problem("vf-driver-not-bound"):
        kernel.effects.do(act(other))


@pytest.mark.parametrize("override", ["(null)", "mlx5_vdpa"])
@pytest.mark.parametrize("change", [GUIDS, DRIVERS])
def test_an_administrator_has_turned_the_probe_of_vfs_off(kernel, change, override):
    """The driver is bound all the same, and his settings are as before."""
    kernel.write(kernel.pf / "sriov_numvfs", b"2\n")
    (kernel.pf / "sriov_drivers_autoprobe").write_text("0\n")
    (kernel.folder(1) / "driver_override").write_text(f"{override}\n")
    if change is DRIVERS:
        (kernel.folder(1) / "driver").unlink()
    kernel.effects.do(act(change))
    assert (kernel.folder(1) / "driver").resolve().name == "mlx5_core"
    assert kernel.effects.read(change).value == change.after
    assert (kernel.folder(1) / "driver_override").read_text() == f"{override}\n"
    assert (kernel.pf / "sriov_drivers_autoprobe").read_text() == "0\n"


def test_without_room_for_the_record_the_step_fails(kernel, monkeypatch):
    def full(*words):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(virtual_function, "write_atomically", full)
    with problem("file-not-written", "No space left"):
        kernel.effects.do(act(number(2)))
    assert (kernel.pf / "sriov_drivers_autoprobe").read_text() == "1\n"


def test_a_driver_that_does_not_come_back_fails_the_step(kernel):
    kernel.write(kernel.pf / "sriov_numvfs", b"2\n")
    kernel.probe = lambda number: None  # its probe fails; the write does not
    with problem("vf-driver-not-bound", "VF 1", "0000:5e:00.2"):
        kernel.effects.do(act(GUIDS))


def test_a_vf_that_is_gone(kernel):
    kernel.effects.do(act(number(1)))
    with problem("vf-gone"):
        kernel.effects.do(act(GUIDS))


def test_without_a_netdev(kernel):
    kernel.effects.do(act(number(2)))
    (kernel.root / "sys/class/net/ib0/device").unlink()
    assert "has no netdev" in kernel.effects.read(GUIDS).problem


def test_the_number_takes_all_settings_with_it():
    assert kind_of(number(2)).owns(kind_of(GUIDS))
    other = Change(VF, "0000:5f:00.0", None, GUIDS.after, "guids")
    assert not kind_of(number(2)).owns(kind_of(other))
    assert kind_of(number(2)).is_maker


def test_other_vfs_are_another_property():
    """Each has its own earlier values."""
    one = Change(VF, PF, None, "0=auto", "link-states")
    other = Change(VF, PF, None, "1=auto", "link-states")
    assert kind_of(one).sets != kind_of(other).sets


@pytest.fixture
def read(monkeypatch) -> list[str]:
    """Gets an entry each time that the unit reads all facts."""
    read: list[str] = []

    class Reader:
        def __init__(self, *_):
            pass

        def facts(self):
            read.append("facts")
            return Facts("hv1", "5.14.0", 1.0)

    monkeypatch.setattr(boot, "HostReader", Reader)
    return read


def test_at_boot_the_host_is_read_once_for_all_vfs(kernel, read):
    """A reading takes seconds, and the unit that sets them again has 300."""
    guids = [replace(GUIDS, after=f"{n}={NODE}/{PORT}") for n in range(8)]
    changes = [act(number(8)), *map(act, guids)]
    acts = tuple(replace(one, run=1, number=n) for n, one in enumerate(changes))
    run = Run(1, "apply", "", acts=acts, outcome="done")
    Journal(kernel.root).write(Ledger((run,)))
    said: list[str] = []
    done = boot.restore_netdev(
        kernel.root, kernel.run, "ib0", said.append, kernel.effects
    )
    assert (done, len(said), len(read)) == (0, 9, 2)
    assert list(kernel.guids.values()) == [[NODE, PORT]] * 8


def test_at_boot_the_unit_of_a_vfs_netdev_looks_for_the_pfs_netdevs_once(kernel):
    """Each VF with a driver starts such units, and they wait for each other."""
    guids = [act(replace(GUIDS, after=f"{n}={NODE}/{PORT}")) for n in range(8)]
    acts = tuple(replace(one, run=1, number=n) for n, one in enumerate(guids))
    Journal(kernel.root).write(
        Ledger((Run(1, "apply", "", acts=acts, outcome="done"),))
    )
    effects, looked = kernel.effects, []
    names = effects.tree.names
    effects.tree.names = lambda folder: looked.append(folder) or names(folder)
    said: list[str] = []
    assert not boot.restore_netdev(kernel.root, kernel.run, "ib7", said.append, effects)
    assert (said, looked.count("/sys/class/net")) == ([], 1)


IN_USE = "in use (somebody else has set it, or its driver enables no more)"


def test_at_boot_a_number_that_somebody_else_has_set_stays(kernel):
    kernel.write(kernel.pf / "sriov_numvfs", b"4\n")
    acts = (replace(act(number(8)), run=1, number=0),)
    run = Run(1, "apply", "", acts=acts, outcome="done")
    Journal(kernel.root).write(Ledger((run,)))
    said: list[str] = []
    done = boot.restore_netdev(
        kernel.root, kernel.run, "ib0", said.append, kernel.effects
    )
    assert done == 1
    assert said[0].endswith(f"stays 4: {IN_USE}")
    assert (kernel.pf / "sriov_numvfs").read_text() == "4\n"


@pytest.mark.usefixtures("read")
def test_at_boot_a_driver_enables_fewer_vfs_than_before(kernel):
    """Later nobody knows whether that was this unit or somebody else."""
    kernel.most = 2
    acts = (replace(act(number(4)), run=1, number=0),)
    run = Run(1, "apply", "", acts=acts, outcome="done")
    Journal(kernel.root).write(Ledger((run,)))
    said: list[str] = []
    for _ in range(2):
        done = boot.restore_netdev(
            kernel.root, kernel.run, "ib0", said.append, kernel.effects
        )
        assert done == 1
    assert "is 2, and should be 4" in said[0]
    assert said[1].endswith(f"stays 2: {IN_USE}")
    # Its driver was loaded again, and has what it needs.
    kernel.write(kernel.pf / "sriov_numvfs", b"0\n")
    kernel.most = 8
    assert not boot.restore_netdev(
        kernel.root, kernel.run, "ib0", said.append, kernel.effects
    )
    assert (kernel.pf / "sriov_numvfs").read_text() == "4\n"


def test_fewer_vfs_than_asked_are_removed_in_the_rollback(kernel):
    """They are this run's, and nobody else's."""
    kernel.most = 2
    step = Step("VF-01", "mlx5_0", "", "0", "4", "live", "", "", (number(4),))
    journal, facts = MemoryJournal(), Facts("hv1", "5.14.0", 1.0)
    result = apply_steps(kernel.effects, journal, [step], Told(), facts)
    assert result.sentence.endswith("set to 4, and is 2; all is as before")
    assert (result.outcome, result.left) == ("rolled back", ())
    assert kernel.effects.read(number(4)).value == "0"
    assert journal.ledger().applied == ()


@pytest.mark.parametrize(
    ("found", "boot_id", "left"),
    [("2", "same", "0"), ("8", "same", "8"), ("2", "other", "2")],
)
def test_which_vfs_may_be_of_a_run_that_was_killed(kernel, found, boot_id, left):
    """Those that it asked for, or fewer; not more, and none after a boot."""
    journal, effects = MemoryJournal(), kernel.effects
    entry = replace(act(number(4)), run=1, number=0, boot="same")
    journal.write(Ledger((Run(1, "apply", "", acts=(entry,)),)))
    kernel.write(kernel.pf / "sriov_numvfs", found.encode())
    effects.boot_id = lambda: boot_id
    result = recover(effects, journal, 1.0, Told())
    assert kernel.effects.read(number(4)).value == left
    whys = [one.why.id for one in result.left]
    assert whys == (["value-changed-by-others"] if left != "0" else [])
    assert journal.ledger().applied == ()


def step(*changes: Change) -> Step:
    return Step("VF-01", "mlx5_0", "", "", "", "live", "", "", changes)


@pytest.mark.parametrize(
    ("there", "driver", "steps"),
    [
        (0, "", [step(number(2)), replace(step(GUIDS), rule="VF-02")]),
        (2, "", [step(DRIVERS)]),
        (2, "mlx5_core", [step(*REBOUND)]),
    ],
)
def test_a_kill_leaves_all_as_before(tmp_path, there, driver, steps):
    """The probe of VFs' drivers stays on, no VF has a driver_override, and one that had
    a driver has it again.
    """
    facts = Facts("hv1", "5.14.0", 1.0)
    for last in count():
        kernel, journal = Kernel(tmp_path / str(last)), MemoryJournal()
        kernel.write(kernel.pf / "sriov_numvfs", f"{there}".encode())
        if there and not driver:
            (kernel.folder(1) / "driver").unlink()
        found = kernel.left()
        try:
            apply_steps(kernel.killed_at(last), journal, steps, Told(), facts)
            break
        except Killed:
            recover(kernel.effects, journal, 1.0, Told())
        assert kernel.left() == found
        assert journal.ledger().applied == ()
    assert last >= 3


def test_a_driver_that_fails_once_is_bound_again_by_the_rollback(kernel):
    """It has failed with the new GUIDs, and the VF was the operator's."""
    kernel.write(kernel.pf / "sriov_numvfs", b"2\n")
    found, probe, journal = kernel.left(), kernel.probe, MemoryJournal()
    kernel.probe = lambda number: probe(number) if kernel.guids[1][0] == ZERO else None
    result = apply_steps(
        kernel.effects, journal, [step(*REBOUND)], Told(), Facts("hv1", "5.14.0", 1.0)
    )
    assert (result.outcome, result.left) == ("rolled back", ())
    assert kernel.left() == found
    assert kernel.seen[1] == [ZERO, ZERO]


def test_a_driver_that_stays_unbound_is_named(kernel):
    kernel.write(kernel.pf / "sriov_numvfs", b"2\n")
    kernel.probe = lambda number: None
    facts, journal = Facts("hv1", "5.14.0", 1.0), MemoryJournal()
    result = apply_steps(kernel.effects, journal, [step(*REBOUND)], Told(), facts)
    assert result.outcome == "partly rolled back"
    assert "not restored: drivers of VF 1" in result.sentence


def iov(kernel: Kernel, path: str):
    file = kernel.pf / "infiniband/mlx4_0/iov" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def test_mlx4_by_files(kernel):
    """drivers/infiniband/hw/mlx4/sysfs.c"""
    kernel.write(kernel.pf / "sriov_numvfs", b"1\n")
    iov(kernel, "ports/1/admin_guids/1").write_text("ffffffffffffffff\n")
    table = "0000:5e:00.1/ports/1/pkey_idx"
    for entry, text in enumerate(("0", "none", "none")):
        iov(kernel, f"{table}/{entry}").write_text(f"{text}\n")

    def write(path, data: bytes) -> None:
        assert path.exists()
        path.write_text(data.decode().strip().removeprefix("0x").lstrip("0") or "0")

    effects = HostEffects(kernel.root, kernel.run, write=write)
    guids = Change(VF, PF, f"0={ZERO}", f"0={PORT}", "guids")
    before = effects.read(guids).value
    assert kind_of(guids).still_holds(before)
    effects.do(act(guids))
    assert iov(kernel, "ports/1/admin_guids/1").read_text() == PORT.replace(":", "")[1:]
    assert effects.read(guids).value == guids.after
    effects.undo(act(guids, before))
    text = iov(kernel, "ports/1/admin_guids/1").read_text()
    assert text == "ffffffffffffffff"

    pkeys = Change(VF, PF, "0=1:0", "0=1:3,2", "pkeys")
    assert effects.read(pkeys).value == "0=1:0"
    effects.do(act(pkeys))
    assert effects.read(pkeys).value == "0=1:3,2"
    effects.undo(act(pkeys, "0=1:0"))
    assert effects.read(pkeys).value == "0=1:0"
    # The Ethernet port has a table that nobody can write.
    iov(kernel, f"{table.replace('/1/', '/2/')}/0").write_text("0\n")
    assert effects.read(pkeys).value == "0=1:0"
    effects.do(act(pkeys))
    assert effects.read(pkeys).value == "0=1:3,2"


PORT_FILE = f"/{DEVICES}/{PF}/mlx4_port1"


def test_a_port_type_is_shown_with_what_was_found(kernel):
    (kernel.pf / "mlx4_port1").write_text("auto (eth)\n")
    wanted: list[bytes] = []

    def write(path, data: bytes) -> None:
        wanted.append(data)
        path.write_text({b"ib\n": "ib\n", b"auto\n": "auto (eth)\n"}[data])

    effects = HostEffects(kernel.root, kernel.run, write=write)
    change = Change(SYSFS, PORT_FILE, "auto", "ib")
    assert effects.read(change).value == "auto"
    effects.do(act(change))
    assert effects.read(change).value == "ib"
    effects.undo(act(change, "auto"))
    assert wanted == [b"ib\n", b"auto\n"]


@pytest.mark.parametrize(
    "change",
    [
        number(16),
        GUIDS,
        STATES,
        DRIVERS,
        Change(VF, PF, None, "0=1:0,3/2:1 1=1:", "pkeys"),
        Change(SYSFS, PORT_FILE, "auto", "eth"),
    ],
)
def test_allowed(change):
    assert kind_of(change).refusal() == ""


@pytest.mark.parametrize(
    "change",
    [
        Change(VF, "../../etc", None, "1", "number"),
        Change(VF, PF, None, "1; reboot", "number"),
        Change(VF, PF, None, "1", "msix"),
        Change(VF, PF, None, "0=auto\n1=auto", "link-states"),
        Change(VF, PF, None, "0=../x", "drivers"),
        Change(VF, PF, None, f"0={NODE} x", "guids"),
        Change(VF, PF, None, None, "guids"),
        Change(SYSFS, PORT_FILE, "auto", "roce"),
        Change(SYSFS, PORT_FILE, "auto", "2048"),
    ],
)
def test_refused(change):
    assert kind_of(change).refusal()
