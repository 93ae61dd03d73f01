# SPDX-License-Identifier: GPL-2.0-or-later
"""Read kernel modules for RDMA and NFS, installed software, and VDSM's settings.

Modules: loaded, available, options, loaded at boot. modprobe.d(5) and the kernel's
command line are read as kmod reads them (libkmod/libkmod-config.c); of its commands
those that set options, or prevent a module from being loaded. Modules are loaded at
boot by modules-load.d(5), by the kernel's command line, and by rdma-core's lists, which
its rdma-load-modules@ units load for the present hardware.

The distribution is in os-release(5). rpm knows the versions. Of the running kernel's
configuration only symbols for RDMA and NFS are read. The boot time is in /proc/stat.
The RDMA stacks are those of vendors, which replace the distribution's.

fapolicyd(8) decides on each execve and open. With its default rules a script may run
only if it is trusted: owned by an RPM or listed in a trust file (fapolicyd 1.0.2 to
2.0.1, rules.d/42-trusted-elf.rules, 70-trusted-lang.rules, 90-deny-execute.rules);
trusted programs of root may run and open any (20-dracut.rules). The others get EPERM.
``fapolicyd-cli --dump-db`` prints the trusted files, one line per file with source,
path, size and digest (src/cli/fapolicyd-cli.c, do_dump_db).

Settings of vdsm.conf are read in the same way as VDSM reads them: files and order are
those of VDSM's lib/vdsm/common/config.py.in.
"""

from __future__ import annotations

import configparser
import io
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Optional, Union

from ovirt_rdma.host.collect.tools import Tools
from ovirt_rdma.host.facts.model import (
    CONCERNED,
    SETS_MODE,
    SUBNET_MANAGERS,
    KernelOption,
    LoadLine,
    ModprobeLine,
    ModuleFile,
    ModuleParameter,
    Modules,
    OwnFile,
    RdmaStack,
    Software,
    UdevLine,
    Unit,
    module_name,
)
from ovirt_rdma.host.paths import (
    DAEMON_UNIT,
    LAUNCHER,
    STOCK_SUPERVDSMD,
    STOCK_VDSMD,
    SYSTEMD_BOOTED,
    VDSM_CONF,
    VDSM_CONF_DROPIN_DIRECTORIES,
    under,
)
from ovirt_rdma.host.system.commands import CommandFailed
from ovirt_rdma.host.system.files import OWN_FILES
from ovirt_rdma.host.system.tree import (
    ROOT,
    VDSM_UID,
    FileTree,
    conf_texts,
    folders_named,
    joined_lines,
    processes,
    runs,
)

COMMAND_LINE = "/proc/cmdline"
# The first one is the kernel's (kernel/module).
_BLACKLISTS = ("module_blacklist", "modprobe.blacklist")
# systemd-modules-load.service(8); the second parameter is for the initrd.
_LOADS = ("modules_load", "rd.modules_load")


def modprobe_lines(path: str, text: str) -> Iterator[ModprobeLine]:
    """Yield the lines of a file that have an effect on a module for RDMA or NFS."""
    for number, line in joined_lines(text):
        command, name, words = (*line.split(maxsplit=2), "", "", "")[:3]
        module = module_name(name)
        if module in CONCERNED and command == "blacklist":
            yield ModprobeLine(path, number, command, module)
        elif module in CONCERNED and command in ("install", "options") and words:
            yield ModprobeLine(path, number, command, module, words.strip())


def load_lines(path: str, text: str) -> Iterator[LoadLine]:
    """Yield the lines of a file that are one name, with the kernel's names of the
    modules; others load nothing.
    """
    for number, line in enumerate(text.split("\n"), 1):
        name = line.strip()
        if _NAME.fullmatch(name) and not name.startswith(("#", ";")):
            yield LoadLine(path, number, module_name(name))


def parameters_of(text: str) -> list[str]:
    """Return the kernel's parameters.

    Quotes can enclose blanks and stay in the value, as in ``parport.dyndbg="file x"``.
    Quotes of a boot loader around a whole parameter are removed.
    """
    words = re.findall(r'(?:"[^"]*"?|[^\s"])+', text, re.ASCII)
    return [
        word.strip('"') if word[:1] == '"' and word.count('"') <= 2 else word
        for word in words
    ]


def parameter_lines(
    parameters: Iterable[str],
) -> tuple[list[ModprobeLine], list[LoadLine]]:
    """Return ``MODULE.NAME=VALUE`` as options, and both blacklists; and what is loaded
    at boot.
    """
    lines: list[tuple[str, str, str]] = []
    loads: list[str] = []
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        module, _, option = parameter.partition(".")
        if name in _BLACKLISTS:
            lines += [("blacklist", one, "") for one in value.split(",")]
        elif name in _LOADS:
            loads += filter(_NAME.fullmatch, value.split(","))
        elif name.count(".") == 1:
            lines.append(("options", module, option))
    return (
        [
            ModprobeLine(COMMAND_LINE, 1, command, module_name(module), text)
            for command, module, text in lines
            if module_name(module) in CONCERNED
        ],
        [LoadLine(COMMAND_LINE, 1, module_name(name)) for name in loads],
    )


LOADED = "/proc/modules"
RDMA_CORE_LISTS = "/etc/rdma/modules"

_MODULE_FILE = re.compile(r"(.+)\.ko(?:\.[a-z0-9]+)?")
# Names of modules and aliases in the kernel have only these characters.
_NAME = re.compile(r"[!-~]+")


def read_modules(
    tree: FileTree, release: str, problems: list[str], details: bool = False
) -> Modules:
    """Return the modules out of CONCERNED, for the running kernel ``release``; with the
    ``details`` that a mount does not need.

    Without modules.dep for that kernel the available modules are unknown. Parameters
    that cannot be read are left out.
    """
    loaded = _loaded(tree.data(LOADED, problems) or b"")
    folder = f"/lib/modules/{release}"
    built_in = module_paths(tree.data(f"{folder}/modules.builtin") or b"")
    dependencies = tree.data(f"{folder}/modules.dep", problems)
    files = module_paths(dependencies or b"")
    available = None if dependencies is None else _concerned({**files, **built_in})
    modules = Modules(_concerned({*loaded, *built_in}), available)
    return _with_details(tree, modules, files, problems) if details else modules


def _concerned(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(CONCERNED & {module_name(name) for name in names}))


def _loaded(data: bytes) -> set[str]:
    """Read ``name size users dependants state address``; a module that is being loaded
    or unloaded does not count as loaded.
    """
    names = set()
    for line in data.decode("utf-8", "surrogateescape").split("\n"):
        fields = line.split()
        if fields and (len(fields) < 5 or fields[4] == "Live"):
            names.add(fields[0])
    return names


def module_paths(data: bytes) -> dict[str, str]:
    """Read modules.dep (``path: paths it needs``) or modules.builtin (``path``).

    Returns file names, without suffix, to paths. A file is name.ko, or compressed:
    name.ko.xz (EL9), name.ko.zst.
    """
    paths = {}
    for line in data.decode("utf-8", "surrogateescape").split("\n"):
        path = line.partition(":")[0].strip()
        match = _MODULE_FILE.fullmatch(posixpath.basename(path))
        if match:
            paths[match.group(1)] = path
    return paths


def _with_details(
    tree: FileTree, modules: Modules, files: Mapping[str, str], problems: list[str]
) -> Modules:
    """Add files, parameters and lines. These are in the order in which modprobe reads
    them: later options of a module add to earlier ones; the last of the same name is
    used.
    """
    found = [ModuleFile(module_name(name), path) for name, path in files.items()]
    parameters = []
    for module in modules.loaded:
        folder = f"/sys/module/{module}/parameters"
        for name in tree.names(folder):
            value = tree.data(f"{folder}/{name}")
            if value is not None:
                text = value.decode("utf-8", "surrogateescape").strip()
                parameters.append(ModuleParameter(module, name, text))
    lines: list[ModprobeLine] = []
    for path, text in conf_texts(tree, folders_named("modprobe.d"), ".conf", problems):
        lines += modprobe_lines(path, text)
    loads: list[LoadLine] = []
    for folders in (folders_named("modules-load.d"), (RDMA_CORE_LISTS,)):
        for path, text in conf_texts(tree, folders, ".conf", problems):
            loads += load_lines(path, text)
    given = parameter_lines(parameters_of(tree.text(COMMAND_LINE, problems) or ""))
    return replace(
        modules,
        files=tuple(
            sorted(
                (one for one in found if one.name in CONCERNED),
                key=lambda file: (file.name, file.path),
            )
        ),
        parameters=tuple(parameters),
        modprobe_lines=(*lines, *given[0]),
        load_lines=(*loads, *given[1]),
    )


_BOOTED_AT = re.compile(r"^btime (\d{1,12})$", re.MULTILINE)


def read_booted_at(tree: FileTree, problems: list[str]) -> Optional[int]:
    """Return when the host booted, in seconds since 1970, UTC; None if it cannot be
    read. ``btime`` changes when the clock is set.
    """
    path = "/proc/stat"
    text = tree.text(path, problems)
    match = _BOOTED_AT.search(text or "")
    if text and not match:
        problems.append(f"{path} has no btime")
    return int(match[1]) if match else None


def read_own_files(tree: FileTree, problems: list[str]) -> tuple[OwnFile, ...]:
    """Return those of OWN_FILES that exist, with their text."""
    files = []
    for path in OWN_FILES:
        folder, _, name = path.rpartition("/")
        if name in tree.names(folder):
            data = tree.data(path, problems)
            text = None if data is None else data.decode("utf-8", "backslashreplace")
            files.append(OwnFile(path, text))
    return tuple(files)


MLNX_OFED = "MLNX_OFED"
DOCA = "DOCA"
EITHER = "MLNX_OFED or DOCA"

OFED_INFO = ("ofed_info", "-s")
# MLNX_OFED_LINUX-23.10-5.1.4.0: in MLNX_OFED, OFED-internal-25.01-0.6.0: in DOCA.
_OFED = re.compile(r"(\S+?)-(\d[\w.-]*):?")
_OFED_NAMES = {"MLNX_OFED_LINUX": MLNX_OFED, "OFED-internal": DOCA}

# No kernel has it, and NVIDIA's modules need it.
_OFED_MODULE = "mlx_compat"
_OFED_FILES = (
    "/usr/lib/systemd/system/openibd.service",
    "/etc/systemd/system/openibd.service",
    "/etc/init.d/openibd",
    "/etc/infiniband/openib.conf",
    "/etc/infiniband/info",
    "/usr/src/ofa_kernel",
)


def read_rdma_stacks(
    tree: FileTree, tools: Tools, release: str, problems: list[str]
) -> tuple[RdmaStack, ...]:
    """Return the vendors' stacks on a host with the running kernel ``release``.

    Without ``ofed_info`` MLNX_OFED and DOCA cannot be distinguished, and have no
    version. Files that remain after a removal are found too; ``evidence`` names them.
    """
    paths = module_paths(tree.data(f"/lib/modules/{release}/modules.dep") or b"")
    evidence = [paths[_OFED_MODULE]] if _OFED_MODULE in paths else []
    evidence += [path for path in _OFED_FILES if tree.real_path(path)]
    name, version = EITHER, None
    text = (tools.text(OFED_INFO, problems, optional=True) or "").strip()
    match = _OFED.fullmatch(text[:200])
    if match:
        name, version = _OFED_NAMES.get(match[1], match[1]), match[2]
    elif text:
        problems.append(f"ofed_info -s printed no version: {text[:60]!a}")
    evidence = [" ".join(OFED_INFO)] * bool(text) + evidence
    return (RdmaStack(name, version, ", ".join(evidence)),) if evidence else ()


# Of a netdev.
_SETS_MODE = re.compile(
    rf'(?!\s*#)(?!.*SUBSYSTEM\s*(?:==\s*"(?!net)|!=\s*"net")).*{SETS_MODE}'
)


def read_udev_lines(tree: FileTree, problems: list[str]) -> tuple[UdevLine, ...]:
    """Return the udev rules that set a transport mode, as old guides have them, in the
    order in which udev reads them.
    """
    return tuple(
        UdevLine(path, number, line.strip())
        for path, text in conf_texts(
            tree, folders_named("udev/rules.d"), ".rules", problems
        )
        for number, line in joined_lines(text)
        if _SETS_MODE.match(line)
    )


_CONF = "/etc/fapolicyd/fapolicyd.conf"
# In permissive mode refusals are only logged.
_PERMISSIVE = re.compile(rb"^[ \t]*permissive[ \t]*=[ \t]*1[ \t]*$", re.MULTILINE)
# Each mode but none compares the size (src/library/database.c of 1.3.3, line 980).
_SIZED = re.compile(rb"^[ \t]*integrity[ \t]*=[ \t]*(?!none\b)\w", re.MULTILINE)
ACTIVE = ("systemctl", "show", "-p", "ActiveState", "--value", "fapolicyd.service")
DUMP = ("fapolicyd-cli", "--dump-db")


def refused_programs(
    tree: FileTree, tools: Tools, programs: Sequence[str]
) -> tuple[str, ...]:
    """Return the ``programs`` that fapolicyd does not trust; none if it is not running,
    only logs, or cannot be queried.

    Rules that allow more, such as those for root, are ignored.
    """
    conf = tree.data(_CONF)
    if conf is None or _PERMISSIVE.search(conf):
        return ()
    if (tools.text(ACTIVE, optional=True) or "").strip() != "active":
        return ()
    dump = tools.text(DUMP, optional=True)
    if dump is None:
        return ()
    trusted = {line.partition(" ")[2].rsplit(" ", 1)[0] for line in dump.splitlines()}
    if not _SIZED.search(conf):
        paths = {entry.rpartition(" ")[0] for entry in trusted}
        return tuple(one for one in programs if one not in paths)
    sizes = {one: len(tree.data(one) or b"") for one in programs}
    return tuple(one for one in programs if f"{one} {sizes[one]}" not in trusted)


def read_software(
    tree: FileTree, tools: Tools, release: str, problems: list[str]
) -> Software:
    """Return the installed software, for the running kernel ``release``.

    Every tool is optional: without it the facts that need it are None or empty.
    """
    return Software(
        distribution=read_distribution(tree, problems),
        vdsm_version=package_version(tools, "vdsm", problems),
        rdma_core=package_version(tools, "rdma-core", problems),
        stacks=read_rdma_stacks(tree, tools, release, problems),
        kernel_config=read_kernel_config(tree, release, problems),
        units=read_units(tree, tools, problems),
        udev_lines=read_udev_lines(tree, problems),
        own_files=read_own_files(tree, problems),
    )


# drivers/infiniband, drivers/net/ethernet/mellanox, net/sunrpc, fs/nfs, fs/configfs
# and net/dcb in Linux 6.12; without CONFIG_.
_CORE = "INFINIBAND INFINIBAND_USER_ACCESS INFINIBAND_USER_MAD CONFIGFS_FS DCB"
_IPOIB = "INFINIBAND_IPOIB INFINIBAND_IPOIB_CM MLX5_CORE_IPOIB"
_MELLANOX = "MLX4_CORE MLX4_CORE_GEN2 MLX4_INFINIBAND MLX5_CORE MLX5_INFINIBAND"
_OTHERS = "HFI1 QIB MTHCA IRDMA BNXT_RE CXGB4 QEDR OCRDMA USNIC VMWARE_PVRDMA"
_SOFT = "RDMA_RXE RDMA_SIW"
_NFS = "SUNRPC_XPRT_RDMA NFS_FS NFS_V3 NFS_V4"
_BLOCK = "INFINIBAND_SRP INFINIBAND_ISER NVME_RDMA"
SYMBOLS = frozenset(f"{_CORE} {_IPOIB} {_MELLANOX} {_SOFT} {_NFS} {_BLOCK}".split()) | {
    f"INFINIBAND_{name}" for name in _OTHERS.split()
}

_SET = re.compile(r"^CONFIG_(\w+)=(.*)$", re.MULTILINE | re.ASCII)
_NOT_SET = re.compile(r"^# CONFIG_(\w+) is not set$", re.MULTILINE | re.ASCII)


def read_kernel_config(
    tree: FileTree, release: str, problems: list[str]
) -> Optional[tuple[KernelOption, ...]]:
    """Return the symbols in SYMBOLS, sorted; None if there is no configuration of the
    kernel ``release``.

    A symbol that is missing in the result is missing in the configuration: this kernel
    does not have it, or one of its dependencies is not set.
    """
    # EL, and images without their own /boot, have the second.
    for path in (f"/boot/config-{release}", f"/lib/modules/{release}/config"):
        data = tree.data(path)
        if data is None:
            continue
        text = data.decode("utf-8", "surrogateescape")
        values = dict.fromkeys(_NOT_SET.findall(text), "n")
        values.update(_SET.findall(text))
        if values:
            return tuple(
                KernelOption(name, values[name].strip().strip('"'))
                for name in sorted(SYMBOLS & values.keys())
            )
        problems.append(f"{path} is not a kernel configuration")
    return None


FILES = ("/etc/os-release", "/usr/lib/os-release")

_EL_PLATFORM = re.compile(r"platform:(el\d{1,3})")
_ASSIGNMENT = re.compile(r"""^(\w+)=["']?([^"'\n]*)["']?[ \t]*$""", re.MULTILINE)


def read_distribution(tree: FileTree, problems: list[str]) -> Optional[str]:
    """Return ``el9`` (``PLATFORM_ID=platform:el9`` in CentOS Stream, RHEL and their
    rebuilds, and oVirt Node), or id and version, ``debian12``; None without os-release.
    """
    for path in FILES:
        data = tree.data(path)
        if data is not None:
            found = dict(_ASSIGNMENT.findall(data.decode("utf-8", "surrogateescape")))
            platform = _EL_PLATFORM.fullmatch(found.get("PLATFORM_ID", ""))
            named = found.get("ID", "") + found.get("VERSION_ID", "")
            return platform[1] if platform else named or None
    problems.append(f"the distribution is unknown: there is no {' or '.join(FILES)}")
    return None


# rpm exits with 1 for a package that is not installed, and prints that on stdout; other
# errors are on stderr.
_NOT_INSTALLED, _NO_ERROR = 1, "exit status 1"


def package_version(tools: Tools, package: str, problems: list[str]) -> Optional[str]:
    """Return the version such as ``4.50.5.1``, without the distribution's part; None if
    the package is not installed, or there is no rpm.
    """
    argv = ["rpm", "-q", "--qf", r"%{VERSION}\n", package]
    try:
        text = tools.text(argv, problems, optional=True, raised_status=_NOT_INSTALLED)
    except CommandFailed as no:
        if _NO_ERROR not in str(no):
            problems.append(f"{' '.join(argv)} failed: {no}")
        return None
    return next(iter((text or "").split()), None)


# Units of rdma-core; opa.conf and the others are in /etc/rdma/modules.
_LOADED_FOR = ("rdma", "infiniband", "roce", "iwarp", "opa")
UNITS = (
    "rdma-hw.target",
    *(f"rdma-load-modules@{name}.service" for name in _LOADED_FOR),
    "rdma-ndd.service",
    "srp_daemon.service",
    "openibd.service",
    *SUBNET_MANAGERS,
    "NetworkManager.service",
    "vdsmd.service",
    DAEMON_UNIT,
)

_PROPERTIES = "Id,LoadState,ActiveState,UnitFileState"
COMMAND = ("systemctl", "show", "--no-pager", "-p", _PROPERTIES, *UNITS)


def read_units(tree: FileTree, tools: Tools, problems: list[str]) -> tuple[Unit, ...]:
    """Return UNITS in their order, missing ones as ``not-found``; an empty tuple if
    systemd is not running or systemctl fails.
    """
    if not tree.is_folder(SYSTEMD_BOOTED):
        return ()
    text = tools.text(COMMAND, problems, optional=True) or ""
    units = []
    # Blocks of Property=value, without those that are empty.
    for block in text.strip().split("\n\n"):
        shown = dict(line.partition("=")[::2] for line in block.split("\n"))
        if "Id" in shown:
            units.append(Unit(*(shown.get(key, "") for key in _PROPERTIES.split(","))))
    return tuple(units)


# vdsmd does not start as another user (VDSM, lib/vdsm/vdsmd.py, __assertVdsmUser).
_DAEMONS = {
    LAUNCHER: ("vdsmd", VDSM_UID),
    STOCK_VDSMD: ("vdsmd", VDSM_UID),
    STOCK_SUPERVDSMD: ("supervdsmd", ROOT),
}
# Exists only if SELinux is enabled; "1" or "0" (kernel, security/selinux/selinuxfs.c).
_ENFORCE = "/sys/fs/selinux/enforce"


def running_scripts(
    tree: FileTree, scripts: Collection[str], first: Optional[int] = None
) -> Iterator[tuple[int, str]]:
    """Yield process id and path of those ``scripts`` of vdsmd and supervdsmd that
    Python runs for the daemon's user.

    They are sorted by process id; there may be several, while one stops and one starts.
    That of ``first``, if it is one, comes before the others are looked for.
    """
    for pid, words in processes(tree, first):
        if not posixpath.basename(words[0]).startswith(b"python"):
            continue
        found = next((word for word in words[1:] if not word.startswith(b"-")), b"")
        script = next((one for one in scripts if one.encode() == found), "")
        if script and runs(tree, pid, _DAEMONS[script][1], "python"):
            yield pid, script


class SELinux(NamedTuple):
    """SELinux, if enabled: enforcing or permissive, and the contexts of VDSM's running
    daemons, ``vdsmd`` and ``supervdsmd``: ``system_u:system_r:virtd_t:s0-s0:c0.c1023``.
    """

    enforcing: bool
    contexts: dict[str, str]


def read_selinux(tree: FileTree) -> Optional[SELinux]:
    """Return SELinux with the contexts that can be read; None if it is disabled."""
    enforce = tree.text(_ENFORCE)
    if enforce is None:
        return None
    contexts: dict[str, str] = {}
    for pid, script in running_scripts(tree, _DAEMONS):
        context = (tree.text(f"/proc/{pid}/attr/current") or "").rstrip("\0")
        if context:
            contexts.setdefault(_DAEMONS[script][0], context)
    return SELinux(enforce == "1", contexts)


SECTION = "irs"
OPTION = "nfs_mount_options"
# VDSM's default, with which it compares (NFSConnection.DEFAULT_OPTIONS).
DEFAULT = "soft,nosharecache"

# VDSM's folder (init/systemd/vdsm-tmpfiles.d.conf.in).
_RUN = "/run/vdsm"
# The limit for all drop-ins there together. Reading takes some 400 nanoseconds per
# byte; a drop-in has a few settings of some 30 bytes each.
_MOST_BYTES_OF_OTHERS = 1 << 18

# The folders of the files, for fixes.
FOLDERS = "/etc/vdsm /run/vdsm /usr/lib/vdsm"


def nfs_mount_options(root: Union[str, Path], problems: list[str]) -> Optional[str]:
    """Return the deprecated ``[irs] nfs_mount_options`` that a VDSM started now below
    ``root`` would use; DEFAULT if no file sets it.

    None, and a sentence in ``problems``, if the files are invalid; then VDSM does not
    start either. Files that cannot be opened are ignored, as in VDSM; those that the
    user vdsm could have made get a sentence.
    """
    return _setting(root, SECTION, OPTION, DEFAULT, problems)


def multipath_blacklist(
    root: Union[str, Path], problems: list[str]
) -> Optional[frozenset[str]]:
    """Return the names of multipath maps that VDSM leaves out (BLACKLIST,
    lib/vdsm/storage/multipath.py); None as for :func:`nfs_mount_options`.
    """
    text = _setting(root, "multipath", "blacklist", "", problems)
    return None if text is None else frozenset(map(str.strip, text.split(",")))


def _setting(
    root: Union[str, Path], section: str, option: str, default: str, problems: list[str]
) -> Optional[str]:
    parser = configparser.ConfigParser(interpolation=None)
    # In the section itself, so that it overrides a [DEFAULT] of the files.
    parser.read_dict({section: {option: default}})
    tree, left = FileTree(root), _MOST_BYTES_OF_OTHERS
    try:
        for path, others in ((VDSM_CONF, ""), *_dropins(tree)):
            failures: list[str] = []
            data = tree.data(path, failures, others=others)
            left -= len(data or b"") if others else 0
            if left < 0:
                raise configparser.Error(
                    f"{others} has more than {_MOST_BYTES_OF_OTHERS} bytes of them"
                )
            if data is not None:
                with io.TextIOWrapper(io.BytesIO(data), encoding="utf-8") as file:
                    parser.read_file(file, source=str(under(root, path)))
            elif others:
                problems += failures
        value = parser.get(section, option)
        # Any other % refers to another setting. Such references can be nested, so that
        # 1 kB could expand to more than the host's memory, and the user vdsm may have
        # written the file.
        if "%" in value.replace("%%", ""):
            raise configparser.Error(
                f"{option} has a % for another setting, which is not followed"
            )
        return value.replace("%%", "%")
    except (configparser.Error, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        problems.append(f"vdsm.conf or a drop-in of it cannot be read: {reason}")
        return None


def replaces_nfs_connections(options: str) -> bool:
    """Whether VDSM mounts an export with only these ``nfs_mount_options`` if the engine
    sends no NFS version, timeout or retransmissions
    (storageServer.tryDeprecatedNfsParams).
    """
    return set(options.replace(" ", "").split(",")) != set(DEFAULT.split(","))


def _dropins(tree: FileTree) -> list[tuple[str, str]]:
    """List the drop-ins in the order of VDSM: by name, independent of the folder. Each
    has the folder in its path that others than root can write, or "".
    """
    paths = []
    for directory in VDSM_CONF_DROPIN_DIRECTORIES:
        others = _RUN if directory.startswith(f"{_RUN}/") else ""
        # As glob.glob("*.conf"): without hidden files.
        names = (n for n in tree.names(directory, others=others) if n[0] != ".")
        paths += [(f"{directory}/{n}", others) for n in names if n.endswith(".conf")]
    return sorted(paths, key=lambda entry: posixpath.basename(entry[0]))
