# SPDX-License-Identifier: GPL-2.0-or-later
"""Make systemd the first process of a guest, with files and kernel arguments.

lab/boot/systemd/prepare installs the files, which are in the initramfs.
"""

from __future__ import annotations

from pathlib import Path

_FILES = Path(__file__).parent / "boot/systemd"
# Drivers of real HCAs: udev would load them for the fabric's PCI functions, and a
# driver that registers would take the name of the fabric's own driver.
HCA_DRIVERS = (
    *("mlx4_core", "mlx4_ib", "mlx4_en", "mlx5_core", "mlx5_ib", "ib_mthca"),
    *("ib_qib", "hfi1", "cxgb4", "iw_cxgb4", "bnxt_en", "bnxt_re", "i40e", "irdma"),
    *("be2net", "ocrdma", "qede", "qedr", "vmw_pvrdma", "efa", "hns_roce"),
)


# With all messages of the audit subsystem in the kernel's log.
_SELINUX = (
    *("security=selinux", "audit=1", "audit_backlog_limit=8192"),
    *("sysctl.kernel.printk_ratelimit=0", "log_buf_len=4M"),
)


def files() -> dict[str, bytes]:
    """Return the files for the initramfs, which begin with ``systemd/``."""
    return {
        f"systemd/{path.relative_to(_FILES)}": path.read_bytes()
        for path in sorted(_FILES.rglob("*"))
        if path.is_file()
    }


def kernel_arguments(hostname: str, labelled: bool = False) -> str:
    """Return the arguments that systemd, udev and the kernel read. Pure.

    Source: kernel-command-line(7), systemd(1). With net.ifnames=0 netdevs keep the
    kernel's names. The kernel itself refuses HCA_DRIVERS, and udev does not load them.
    A ``labelled`` guest enforces SELinux, and the kernel's log has what was denied.
    """
    selinux = " ".join(_SELINUX) if labelled else "audit=0"
    drivers = ",".join(HCA_DRIVERS)
    return (
        f"systemd.unit=lab.target systemd.hostname={hostname} systemd.show_status=no"
        f" systemd.firstboot=no {selinux} net.ifnames=0"
        f" modprobe.blacklist={drivers} module_blacklist={drivers}"
    )
