# SPDX-License-Identifier: GPL-2.0-or-later
"""Check that vdsmd's SELinux context with our drop-in is that of stock VDSM.

No policy is loaded. The tables are facts of fedora-selinux/selinux-policy: which type
a program's file has, and which domain and range a process gets that executes a file of
that type. Five states: the last of the branches c9s, c10s and rawhide that were read
(October 2024; c10s February), the commit that labelled VDSM's daemons (April 2022), and
the one before it, as of EL 9.0. Their lines, as c9s / c10s / rawhide / cbf9b2f25 (the
one before it is the same where only one is named):

- init_t, virtd_exec_t: virtd_t by init_daemon_domain (contrib/virt.te:273 / 258 / 258
  / 259, system/init.if:247 for the attribute initrc_domain, which init_t and initrc_t
  have, system/init.te:100,133); its range by init_ranged_daemon_domain
  (contrib/virt.te:309 / 296 / 296 / 295).
- init_t, bin_t: unconfined_service_t (system/init.te:895 / 901 / 916 / 875,
  system/unconfined.if:244 / 244 / 244 / 228).
- init_t, shell_exec_t: initrc_t (system/init.te:448 / 452 / 455 / 446).
- virtd_t executes bin_t and shell_exec_t in its own domain (contrib/virt.te:554-555 /
  678-679 / 683-684 / 529-530); unconfined_service_t has no transition for any of
  these types (system/unconfined.te).
- daemonAdapter and vdsmd: contrib/virt.fc:97-100, in c10s and rawhide
  contrib/virt_supplementary.fc:46-49; cbf9b2f25 has vdsmd only (virt.fc:97-98), and
  the one before it neither. All else below /usr/libexec: kernel/corecommands.fc:316 /
  316 / 265 / 315. /bin/sh is bash (:215 / 215 / 163 / 215).

sanlock may only end vdsmd in virtd_t: contrib/sanlock.te:158-159.

The transitions of c9s were also found in a compiled policy: with the Debian packages
checkpolicy, semodule-utils, setools, m4 and gawk, a checkout of the branch, `make
TYPE=mcs NAME=targeted DISTRO=redhat MONOLITHIC=n UBAC=n SYSTEMD=y conf base.pp ...`
(interfaces of policies with their own packages, such as container's, need a stub),
semodule_link, semodule_expand, then `sesearch -T -s init_t -c process` etc.

For a script the kernel uses the type of the script's file, not the interpreter's.
"""

from __future__ import annotations

import shlex

import pytest
from support.storage.launcher_host import DROPIN, LAUNCHER_PATH, STOCK_PATH

from lab import systemd_unit, vdsm_packages

ADAPTER = "/usr/libexec/vdsm/daemonAdapter"
STOCK_UNIT = (vdsm_packages.CHECKOUT / "lab/vdsm_host/vdsmd.service").read_text()

Context = tuple[str, str]
INIT = ("init_t", "s0")
VIRTD = ("virtd_t", "s0-s0:c0.c1023")
UNCONFINED = ("unconfined_service_t", "s0")
INITRC = ("initrc_t", "s0")

# (domain, type of the executed file): the domain of the process; None: no change.
TRANSITIONS: dict[tuple[str, str], Context | None] = {
    ("init_t", "virtd_exec_t"): VIRTD,
    ("init_t", "bin_t"): UNCONFINED,
    ("init_t", "shell_exec_t"): INITRC,
    ("initrc_t", "virtd_exec_t"): VIRTD,
    ("initrc_t", "bin_t"): None,
    ("initrc_t", "shell_exec_t"): None,
    ("virtd_t", "virtd_exec_t"): None,
    ("virtd_t", "bin_t"): None,
    ("virtd_t", "shell_exec_t"): None,
    ("unconfined_service_t", "virtd_exec_t"): None,
    ("unconfined_service_t", "bin_t"): None,
    ("unconfined_service_t", "shell_exec_t"): None,
}
EVERYWHERE = {
    "/bin/sh": "shell_exec_t",
    "/usr/bin/env": "bin_t",
    LAUNCHER_PATH: "bin_t",
}
LABELLED = {**EVERYWHERE, ADAPTER: "virtd_exec_t", STOCK_PATH: "virtd_exec_t"}
# The type of a program's file, in each state of the policy.
POLICIES = {
    "c9s 73a2d29ae": LABELLED,
    "c10s e0e55ecfd": LABELLED,
    "rawhide fd1d99621": LABELLED,
    "cbf9b2f25": {**LABELLED, ADAPTER: "bin_t"},
    "before cbf9b2f25": {**LABELLED, ADAPTER: "bin_t", STOCK_PATH: "bin_t"},
}


def programs(words: list[str], launched: str) -> list[str]:
    """Return the programs that replace each other; ``$run`` is ``launched``."""
    first, rest = words[0], words[1:]
    if first == ADAPTER:  # each of -0, -1 and -2 has a value
        while rest[0].startswith("-"):
            rest = rest[2:]
    elif first.endswith("/env"):
        while rest[0] == "-u":
            rest = rest[2:]
    elif first.endswith("/sh"):
        _, exec_, last = rest[rest.index("-c") + 1].rpartition("exec ")
        assert exec_
        rest = shlex.split(last.replace("$run", launched))
    else:
        return [first]
    return [first, *programs(rest, launched)]


def context(policy: str, chain: list[str]) -> Context:
    """Return the context of systemd's child at the end of ``chain``."""
    now = INIT
    for program in chain:
        now = TRANSITIONS[now[0], POLICIES[policy][program]] or now
    return now


def of_unit(policy: str, *files: str, launched: str, then: tuple[str, ...]) -> Context:
    words = systemd_unit.exec_start(files)
    return context(policy, [*programs(words, launched), *then])


def of_stock(policy: str) -> Context:
    return of_unit(policy, STOCK_UNIT, launched="", then=())


WAYS = {
    "the launcher": (LAUNCHER_PATH, ()),
    "the launcher, which starts stock": (LAUNCHER_PATH, (STOCK_PATH,)),
    "stock, because the launcher cannot run": (STOCK_PATH, ()),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("way", WAYS)
def test_vdsmd_has_the_domain_and_range_of_stock(policy, way):
    launched, then = WAYS[way]
    ours = of_unit(policy, STOCK_UNIT, DROPIN.read_text(), launched=launched, then=then)
    assert ours == of_stock(policy)


def test_stock_is_where_sanlock_may_end_it_since_vdsm_is_labelled():
    wanted = dict.fromkeys(POLICIES, VIRTD)
    # The domain depends on the first program only.
    wanted["cbf9b2f25"] = wanted["before cbf9b2f25"] = UNCONFINED
    assert {policy: of_stock(policy) for policy in POLICIES} == wanted


@pytest.mark.parametrize(
    "start, policy, wrong",
    [
        ("/usr/bin/env /bin/sh", "c9s 73a2d29ae", UNCONFINED),
        ("/bin/sh", "before cbf9b2f25", INITRC),
    ],
)
def test_other_first_programs_end_elsewhere(start, policy, wrong):
    """daemonAdapter must be first: these differ from stock with at least one policy."""
    unit = f"[Service]\nExecStart={start} -c 'exec /usr/bin/env -u _ {ADAPTER} $run'"
    ended = of_unit(policy, unit, launched=LAUNCHER_PATH, then=())
    assert ended == wrong != of_stock(policy)
