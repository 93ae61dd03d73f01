# SPDX-License-Identifier: GPL-2.0-or-later
"""MODOPT-01: module options that the kernel's own drivers no longer have.

They are of MLNX_OFED and of kernels before 4.0, and live on in old guides. The kernel
logs "unknown parameter ... ignored" and loads the module. The names were compared with
the parameters of the modules of Debian's Linux 6.1 (mlx4_core: port_type_array,
num_vfs, probe_vf, log_mtts_per_seg and others, none of these).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Optional

from ovirt_rdma.host.module_names import module_name
from ovirt_rdma.host.own_files import MODPROBE
from ovirt_rdma.host.rules.absence import HOST
from ovirt_rdma.host.rules.modprobe import file_of, is_of_the_kernel, place_of
from ovirt_rdma.host.rules.rule import PASS, WARN, Finding, Rule
from ovirt_rdma.host.rules.view import View

ID = "MODOPT-01"

_PORT_MTU = (
    "mlx4 offers 4096 by itself today, and port_mtu in the policy changes it "
    "(mlx4_portN_mtu)"
)
_MEMORY = "mlx4_core sizes it by the host's memory"
_RESOURCES = "mlx4_core's own number serves, and nothing replaces it"
_ENHANCED = (
    "ConnectX-4 and later are in datagram mode only; without connected mode, raise the "
    "datagram MTU to 4092"
)
_LRO = "GRO does that now, for every netdev (ethtool -k shows rx-gro)"

# (module, option) to what takes its place.
DEAD: dict[tuple[str, str], str] = {
    ("mlx4_core", "mtu_4k"): _PORT_MTU,
    ("mlx4_core", "set_4k_mtu"): _PORT_MTU,
    ("mlx4_core", "log_num_mtt"): _MEMORY,
    ("mlx4_core", "log_num_mpt"): _MEMORY,
    ("mlx4_core", "log_num_qp"): _RESOURCES,
    ("mlx4_core", "log_num_srq"): _RESOURCES,
    ("mlx4_core", "log_num_cq"): _RESOURCES,
    ("mlx4_core", "log_num_mcg"): _RESOURCES,
    ("mlx4_core", "log_rdmarc_per_qp"): _RESOURCES,
    ("ib_ipoib", "ipoib_enhanced"): _ENHANCED,
    ("ib_ipoib", "lro"): _LRO,
    ("ib_ipoib", "lro_max_aggr"): _LRO,
}

_NAME = re.compile(r"([\w-]+)(?:=|$)")


def is_dead(view: View, module: str, option: str) -> bool:
    """Whether the option does nothing on this host.

    Not so where the loaded module shows that it has it, or its file is not the
    kernel's own (MLNX_OFED has some of them still).
    """
    module, option = module_name(module), option.replace("-", "_")
    if (module, option) not in DEAD:
        return False
    modules = view.facts.modules
    if any(
        module_name(p.module) == module and p.name == option for p in modules.parameters
    ):
        return False
    path = file_of(modules, module)
    return path is None or is_of_the_kernel(path)


def replacement(module: str, option: str) -> Optional[str]:
    """Return what takes the place of a dead option."""
    return DEAD.get((module_name(module), option.replace("-", "_")))


def option_names(text: str) -> Iterator[str]:
    """Yield the names in the text of an ``options`` line: ``a=1 b``."""
    for word in text.split():
        match = _NAME.match(word)
        if match:
            yield match.group(1)


def decide(view: View) -> Iterator[Finding]:
    """Give a finding for each dead option, or one that there are none."""
    found = False
    for line in view.facts.modules.modprobe_lines:
        if line.command != "options" or line.file == MODPROBE:
            continue
        for name in option_names(line.text):
            if is_dead(view, line.module, name):
                found = True
                yield _finding(line.module, name, place_of(line))
    for option in view.policy.host.module_options:
        if is_dead(view, option.module, option.name):
            found = True
            yield _finding(option.module, option.name, "policy.yaml")
    if not found:
        yield Finding(ID, HOST, PASS, "no module option was found that does nothing")


def _finding(module: str, name: str, where: str) -> Finding:
    return Finding(
        ID,
        f"{module}.{name}",
        WARN,
        f"{where} sets {name}, which this kernel's {module} does not have: it does "
        f"nothing; {replacement(module, name)}",
        f"take {name} out of {where}",
    )


RULE = Rule(
    id=ID,
    title="module options that do nothing any more",
    what=(
        "modprobe.d and the policy should set no option that the driver does not have: "
        "mtu_4k, set_4k_mtu, log_num_mtt and their like of mlx4_core, ipoib_enhanced "
        "and lro of ib_ipoib."
    ),
    why=(
        "The kernel only logs that it ignores an unknown option, so such a line looks "
        "as if it did something. mtu_4k and set_4k_mtu gave mlx4 ports an MTU of 4096, "
        "which today is the default and is changed in sysfs (mlx4_portN_mtu). "
        "log_num_mtt sized the table of registered memory, which follows the host's "
        "memory now. Drivers of MLNX_OFED still have some of them: where the loaded "
        "module shows the option, it counts as alive."
    ),
    fix="Take the option out of the file that the finding names.",
    sources=(
        "modinfo mlx4_core mlx4_ib ib_ipoib (Linux 6.1)",
        "Linux kernel/module, kernel/params.c: unknown parameters are ignored",
        "MLNX_OFED user manual (where the options come from)",
    ),
    decide=decide,
)

RULES = (RULE,)
