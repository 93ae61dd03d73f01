# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the pyperf program of :mod:`bench.hook_cost`: VDSM's runner on our hooks."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyperf
from support.storage import vdsm_source

from bench.hook_cost import (
    CAPS,
    CAPS_OFF,
    EMPTY_BARE,
    EMPTY_CAPS,
    EMPTY_NETWORK,
    ETHERNET,
    INFINIBAND,
    NETWORK_OFF,
    PROGRAM,
)
from bench.rounds import CHECKOUT, PACKAGE

_PYTHON = Path("/usr/bin/python3")
_EMPTY = f"#!{_PYTHON}\n"
_SITECUSTOMIZE = "static/libexec/vdsm/sitecustomize.py"
_CAPS_BYTES = 43_000


def main() -> None:
    """Run the pyperf program."""
    runner = pyperf.Runner(program_args=("-m", PROGRAM))
    with tempfile.TemporaryDirectory() as name:
        hooks, path = _vdsm(Path(name))
        roots = {what: Path(name) / what for what in ("empty", "ours", "off")}
        _empty(roots["empty"])
        _ours(roots["ours"])
        _ours(roots["off"])
        (roots["off"] / "etc/ovirt-rdma/enabled").unlink()
        caps = {"additionalFeatures": ["a"], "rest": ["x" * 96] * (_CAPS_BYTES // 100)}
        ethernet = _request("eth0", bridged=True)
        infiniband = _request("ib0", bridged=False)

        def bench(what: str, root: str, call: str, data: object) -> None:
            pythonpath = None if what == EMPTY_BARE else path
            run = _caller(hooks, roots[root], pythonpath, data, call)
            runner.bench_func(what, run)

        bench(EMPTY_CAPS, "empty", "after_get_caps", caps)
        bench(CAPS, "ours", "after_get_caps", caps)
        bench(CAPS_OFF, "off", "after_get_caps", caps)
        bench(EMPTY_NETWORK, "empty", "before_network_setup", infiniband)
        bench(ETHERNET, "ours", "before_network_setup", ethernet)
        bench(INFINIBAND, "ours", "before_network_setup", infiniband)
        bench(NETWORK_OFF, "off", "before_network_setup", infiniband)
        bench(EMPTY_BARE, "empty", "before_network_setup", infiniband)


def _vdsm(folder: Path) -> tuple[Any, str]:
    """Return VDSM's hook runner, and the PYTHONPATH that vdsmd gives to hooks.

    Without VDSM_SOURCE they are the double's, for the tests of this program.
    """
    source = os.environ.get("VDSM_SOURCE")
    packages = CHECKOUT / "tests/vdsm_double"
    libexec = folder / "libexec"
    libexec.mkdir()
    if source:
        packages = folder / "packages"
        packages.mkdir()
        vdsm_source.build(Path(source), packages)
        (libexec / "sitecustomize.py").symlink_to(Path(source) / _SITECUSTOMIZE)
    sys.path.insert(0, str(packages))
    # On a host Python finds VDSM's own package; here the path must name it.
    return importlib.import_module("vdsm.common.hooks"), f"{libexec}:{packages}"


def _caller(
    hooks: Any, root: Path, path: str | None, data: object, call: str
) -> Callable[[], Any]:
    point = getattr(hooks, call)
    environment = {"PYTHONPATH": path} if path else {}

    def run() -> Any:
        # Not earlier: pyperf's own processes need another.
        kept = os.environ.pop("PYTHONPATH")
        os.environ.update(environment)
        hooks.P_VDSM_HOOKS = str(root / "usr/libexec/vdsm/hooks")
        try:
            return point(data)
        finally:
            os.environ["PYTHONPATH"] = kept

    _check(call, root, run())
    return run


def _check(call: str, root: Path, answer: Any) -> None:
    """Check that the hook did what is measured."""
    if call == "after_get_caps":
        added = "NFS_RDMA" in answer["additionalFeatures"]
        if added != (root.name == "ours"):
            raise AssertionError(f"{root.name}: {answer['additionalFeatures']}")


def _empty(root: Path) -> None:
    for point in ("after_get_caps", "before_network_setup"):
        _hook(root, point, _EMPTY)


def _ours(root: Path) -> None:
    for point in ("after_get_caps", "before_network_setup"):
        entry = CHECKOUT / "vdsm_hooks" / point / "50_ovirt_rdma"
        _hook(root, point, entry.read_text(encoding="utf-8"))
    version = _PYTHON.resolve().name.removeprefix("python")
    packages = root / f"usr/lib/python{version}/site-packages"
    packages.mkdir(parents=True)
    (packages / "ovirt_rdma").symlink_to(PACKAGE / "ovirt_rdma")
    _write(root, "etc/ovirt-rdma/enabled", "")
    caps = '{"schema_version": 1, "additionalFeatures": ["NFS_RDMA"]}\n'
    _write(root, "run/ovirt-rdma/caps.json", caps)
    for name, kind in (("eth0", "1"), ("ib0", "32")):
        _write(root, f"sys/class/net/{name}/type", f"{kind}\n")
        _write(root, f"sys/class/net/{name}/mtu", "1500\n")
    _write(root, "sys/class/net/ib0/mode", "datagram\n")


def _hook(root: Path, point: str, text: str) -> None:
    path = f"usr/libexec/vdsm/hooks/{point}/50_ovirt_rdma"
    _write(root, path, text)
    (root / path).chmod(0o755)


def _write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text, encoding="utf-8")


def _request(nic: str, *, bridged: bool) -> dict[str, object]:
    network = {"nic": nic, "bridged": bridged, "mtu": 1500, "switch": "legacy"}
    return {
        "request": {
            "networks": {"storage": network},
            "bondings": {},
            "options": {"connectivityCheck": "true", "connectivityTimeout": 120},
        }
    }


if __name__ == "__main__":
    main()
