# SPDX-License-Identifier: GPL-2.0-or-later
"""Make a checkout of oVirt/vdsm importable without building or installing it.

:func:`build` lays out a folder for sys.path or PYTHONPATH: VDSM's modules as
links into the checkout, the modules that VDSM's build makes from ``*.in``, and a
strict stand-in (see :mod:`absent_module`) for each library that this machine
does not have. Storage connections need none of those libraries.

As a program, which the lab's guests run: ``vdsm_source CHECKOUT FOLDER``.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from pathlib import Path

_PACKAGES = ("vdsm", "yajsonrpc")

# What VDSM imports from outside the standard library (vdsm.spec.in, Requires).
_LIBRARIES = (
    "asyncore",  # removed in Python 3.12
    "augeas",
    "blivet",
    "cryptography",
    "dateutil",
    "dbus",
    "distutils",  # removed in Python 3.12
    "dmidecode",
    "ioprocess",
    "libnmstate",
    "libvirt",
    "libvirt_qemu",
    "os_brick",
    "oslo_concurrency",
    "ovirt_imageio",
    "requests",
    "sanlock",
    "selinux",
    "seobject",
    "yaml",
)

# Libraries that VDSM uses while it is imported, so they must be the real ones.
_NEEDED = ("decorator", "six")

# The results of configure.ac on a hypervisor; paths of programs are searched.
_ANSWERS = {
    "CONFDIR": "/etc/vdsm",
    "ENABLE_LIBVIRT_SANLOCK": "yes",
    "ENABLE_LIBVIRT_SELINUX": "yes",
    "GLUSTER_MGMT": "0",
    "HOOKSDIR": "/usr/libexec/vdsm/hooks",
    "LIBEXECDIR": "/usr/libexec/vdsm",
    "METADATAGROUP": "kvm",
    "METADATAUSER": "vdsm",
    "PACKAGE_BASE_RELEASE": "0",
    "PACKAGE_BASE_VERSION": "0",
    "PACKAGE_RELEASE": "0",
    "PACKAGE_VERSION": "0",
    "QEMUGROUP": "qemu",
    "QEMUUSER": "qemu",
    "SNLKUSER": "sanlock",
    "VDSMGROUP": "kvm",
    "VDSMLOGDIR": "/var/log/vdsm",
    "VDSMLIBDIR": "/var/lib/vdsm",
    "VDSMREPO": "/rhev/data-center",
    "VDSMRUNDIR": "/run/vdsm",
    "VDSMUSER": "vdsm",
    "sysconfdir": "/etc",
}


def build(checkout: Path, folder: Path) -> Path:
    """Fill the empty ``folder`` from ``checkout``; return it, for sys.path.

    Raises RuntimeError if ``checkout`` has no lib/vdsm, or if a library is missing that
    no stand-in can replace.
    """
    library = checkout.resolve() / "lib"
    if not (library / "vdsm/storage/storageServer.py").is_file():
        raise RuntimeError(
            f"VDSM_SOURCE: {checkout} has no lib/vdsm/storage/storageServer.py;"
            " name a checkout of oVirt/vdsm"
        )
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeError(
            f"VDSM_SOURCE: importing VDSM needs {' and '.join(missing)};"
            f" run: pip install {' '.join(missing)}"
        )
    for package in _PACKAGES:
        for original in (library / package).rglob("*"):
            copy = folder / original.relative_to(library)
            if original.name.endswith(".py.in"):
                copy.parent.mkdir(parents=True, exist_ok=True)
                text = _substitute(original.read_text(encoding="utf-8"))
                copy.with_suffix("").write_text(text, encoding="utf-8")
            elif original.suffix == ".py":
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.symlink_to(original)
    stand_in = Path(__file__).resolve().with_name("absent_module.py")
    for name in _LIBRARIES:
        if importlib.util.find_spec(name) is None:
            (folder / name).mkdir()
            (folder / name / "__init__.py").symlink_to(stand_in)
    return folder


def _substitute(template: str) -> str:
    return re.sub(r"@(\w+)@", lambda found: _answer(found[1]), template)


def _answer(name: str) -> str:
    if name in _ANSWERS:
        return _ANSWERS[name]
    if name.endswith("_PATH"):
        program = name[: -len("_PATH")].lower().replace("_", ".")
        return shutil.which(program) or f"/usr/bin/{program}"
    return f"/nonexistent/{name}"


if __name__ == "__main__":
    build(*map(Path, sys.argv[1:]))
