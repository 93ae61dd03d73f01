# SPDX-License-Identifier: GPL-2.0-or-later
"""The software and configuration of a fake host: distribution, kernel configuration,
packages, units, and the files of modprobe, modules-load and udev.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ovirt_rdma.host.collect.software import COMMAND, UNITS
from ovirt_rdma.host.facts.model import Unit
from ovirt_rdma.host.system.commands import CommandFailed
from support.fakes.fake_files import FakeFiles
from support.fakes.fake_runner import FakeRunner

# As in the distributions' packages, without their names and addresses.
OS_RELEASE = {
    "el9": 'NAME="Rocky Linux"\nVERSION="9.4 (Blue Onyx)"\nID="rocky"\n'
    'ID_LIKE="rhel centos fedora"\nVERSION_ID="9.4"\nPLATFORM_ID="platform:el9"',
    "el10": 'NAME="CentOS Stream"\nVERSION="10 (Coughlan)"\nRELEASE_TYPE=stable\n'
    'ID="centos"\nID_LIKE="rhel fedora"\nVERSION_ID="10"\nPLATFORM_ID="platform:el10"',
    "debian12": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n'
    'NAME="Debian GNU/Linux"\nVERSION_ID="12"\nVERSION="12 (bookworm)"\nID=debian',
}


@dataclass
class FakeSoftware(FakeFiles):
    """Part of :class:`host_fake_root.FakeRoot`."""

    _packages: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    _units: dict[str, Unit] = field(default_factory=dict, init=False, repr=False)

    def distribution(self, name: str = "el9") -> None:
        """Set the os-release file: a key of OS_RELEASE."""
        self.write("/usr/lib/os-release", OS_RELEASE[name])

    def command_line(self, *parameters: str) -> None:
        """Set the kernel's command line."""
        words = ("BOOT_IMAGE=(hd0,gpt2)/vmlinuz", "ro", "crashkernel=1G", *parameters)
        self.write("/proc/cmdline", " ".join(words))

    # Modules

    def module_files(self, *paths: str) -> None:
        """Set modules.dep: ``extra/mlnx-ofa_kernel/.../mlx5_core.ko``."""
        lines = [f"{path}: kernel/lib/dimlib.ko.xz" for path in paths]
        self.write(f"/lib/modules/{self._kernel()}/modules.dep", "\n".join(lines))

    def module_parameters(self, module: str, **values: object) -> None:
        """Set parameters of a module, which should be loaded."""
        for name, value in values.items():
            self.write(f"/sys/module/{module}/parameters/{name}", str(value))

    def modprobe_d(self, name: str, *lines: str, folder: str = "/etc") -> None:
        """Write ``folder``/modprobe.d/``name``.conf."""
        self.write(f"{folder}/modprobe.d/{name}.conf", "\n".join(lines))

    def modules_load_d(self, name: str, *lines: str, folder: str = "/etc") -> None:
        """Write ``folder``/modules-load.d/``name``.conf."""
        self.write(f"{folder}/modules-load.d/{name}.conf", "\n".join(lines))

    def rdma_core_lists(self, red_hat: bool = True, srp_daemon: bool = False) -> None:
        """Write rdma-core's lists; Red Hat's has two modules more."""
        targets = ("ib_isert", "ib_srpt") if red_hat else ()
        lists = {
            "infiniband": ("ib_ipoib", "ib_umad"),
            "opa": ("ib_ipoib", "ib_umad", "opa_vnic"),
            "rdma": ("ib_iser", *targets, "ib_uverbs", "rdma_ucm", "xprtrdma"),
            "roce": (),
            "iwarp": (),
        }
        if srp_daemon:
            lists["srp_daemon"] = ("ib_srp",)
        for name, modules in lists.items():
            text = "# These modules are loaded by the system\n" + "\n".join(modules)
            self.write(f"/etc/rdma/modules/{name}.conf", text)

    # Packages and units

    def package(self, name: str, version: str = "") -> None:
        """Install an rpm package; without a version remove it. From the first call on
        the host has ``rpm``, and no other package.
        """
        self._packages[name] = version
        for known in ("vdsm", "rdma-core", *self._packages):
            has = self._packages.get(known)
            self._runner().answer(
                rf"rpm -q --qf %{{VERSION}}\n {known}",
                f"{has}\n" if has else CommandFailed("exit status 1", 1),
            )

    def unit(
        self,
        name: str,
        active: str = "active",
        enabled: str = "enabled",
        load: str = "loaded",
    ) -> None:
        """Set a unit; from the first call on systemd is running, with no others."""
        assert name in UNITS, f"no unit that is asked for: {name}"
        self._units[name] = Unit(name, load, active, enabled)
        (self.path / "run/systemd/system").mkdir(parents=True, exist_ok=True)
        self._runner().answer(" ".join(COMMAND), self._shown_units)

    def _shown_units(self) -> str:
        blocks = []
        for name in UNITS:
            unit = self._units.get(name, Unit(name, "not-found", "inactive"))
            lines = [f"Id={unit.name}", f"LoadState={unit.load}"]
            lines.append(f"ActiveState={unit.active}")
            if unit.enabled:
                lines.append(f"UnitFileState={unit.enabled}")
            blocks.append("\n".join(lines) + "\n")
        return "\n".join(blocks)

    def mlnx_ofed(self, said: str = "MLNX_OFED_LINUX-23.10-5.1.4.0:") -> None:
        """Install NVIDIA's stack: ``ofed_info`` and its files."""
        self._runner().answer("ofed_info -s", f"{said}\n")
        self.write("/etc/infiniband/openib.conf", "# Start HCA driver upon boot")
        self.write("/usr/lib/systemd/system/openibd.service", "[Unit]")

    # Kernel and udev

    def kernel_config(self, *unset: str, **values: str) -> None:
        """Write the kernel's configuration: symbols not set, and values."""
        lines = ["# Automatically generated file; DO NOT EDIT."]
        lines += [f"# CONFIG_{name} is not set" for name in unset]
        lines += [f"CONFIG_{name}={value}" for name, value in values.items()]
        self.write(f"/boot/config-{self._kernel()}", "\n".join(lines))

    def udev_rules(self, name: str, *lines: str, folder: str = "/etc") -> None:
        """Write ``folder``/udev/rules.d/``name``.rules."""
        self.write(f"{folder}/udev/rules.d/{name}.rules", "\n".join(lines))

    def _kernel(self) -> str:
        release = (self.path / "proc/sys/kernel/osrelease").read_text()
        return release.strip()

    def _runner(self) -> FakeRunner:
        runner = getattr(self, "runner", None)
        assert isinstance(runner, FakeRunner)
        return runner
