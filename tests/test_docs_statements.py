# SPDX-License-Identifier: GPL-2.0-or-later
"""Check what documents state, beyond names: messages, policies, variables, exit codes.

test_docs_commands.py checks command lines and names.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator

import pytest
import yaml
from support.guide import TOP, pages

from ovirt_rdma.cli.engine import main as engine
from ovirt_rdma.cli.host import main as host
from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.storage.metrics.exporter import FAMILIES
from tools import picture

pytestmark = pytest.mark.hypervisor

DOCS = TOP / "docs"
TROUBLE = DOCS / "troubleshooting.md"
ROLE = TOP / "host_deploy/roles/prepare"
# What others print, which the sources at the end of the page name: mount.nfs, kernel,
# VDSM, engine, sanlock, NetworkManager, QEMU, exporters, other projects.
FOREIGN = (
    "mount.nfs|modprobe:|rpcrdma: |nfs: server|INFO: task|Checker |VM vm1|Storage |Host"
    "|The error message|General Exception|s3 check_our|SUNRPC:|unknown parameter"
    "|unknown migration|invalid NFS|NetworkManager|reason given|access denied"
    "|Permission settings|requested NFS|port 20049 is not|is routing being|VF ib2"
    "|failed to set vf|mlx5_0: |Invalid argument|No package "
)
# Commands, files, columns: what a reader types or sees, and nothing that we say.
NO_MESSAGE = re.compile(r"(?:ovirt-rdma|journalctl|echo|xprt:|ps$)")


def texts() -> Iterator[tuple[str, str]]:
    for path in sorted(pages()):
        yield str(path.relative_to(TOP)), path.read_text()


def said() -> str:
    """Return each text of the product, with "{}" for an expression in it."""
    found = []
    rooms = ("host", "storage", "cli", "engine_sdk_tools", "vdsm_hooks")
    files = [path for room in rooms for path in (TOP / room).rglob("*.py")]
    files += (TOP / "host_deploy/plugins").rglob("*.py")
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                found.append(
                    "".join(
                        str(part.value) if isinstance(part, ast.Constant) else "{}"
                        for part in node.values
                    )
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


def our_messages(page: str) -> Iterator[str]:
    """Yield the messages of ours in the first column of a page's tables."""
    for line in page.partition("\n## Sources")[0].splitlines():
        cells = line.split(" | ")
        if not line.startswith("| ") or line.startswith("| message"):
            continue
        for code in re.findall(r"`([^`]+)`", cells[0]):
            foreign = re.match(FOREIGN, code) or NO_MESSAGE.match(code)
            if " " in code and not foreign:
                yield code


def test_each_message_of_ours_is_one_that_the_product_prints():
    product = said()
    found = list(our_messages(TROUBLE.read_text()))
    assert len(found) > 12
    wrong = []
    for message in found:
        # A number, a version and a quoted name stand for others.
        parts = re.split(r"'[^']*'|NFS [\d.]+|\b\d[\d.]*\b|ovirt-rdma: ", message)
        if not all(part.strip(" '") in product for part in parts):
            wrong.append(message)
    assert wrong == []


def test_each_policy_is_valid():
    count = 0
    for name, text in texts():
        blocks = re.findall(r"^```ya?ml\n(.*?)^```$", text, re.M | re.S)
        blocks += re.findall(r"<<'END'\n(.*?)^END$", text, re.M | re.S)
        blocks += re.findall(r"^((?: {4}.*\n)+)", text, re.M)
        for block in blocks:
            plain = textwrap.dedent(block)
            if plain.startswith("version: 1\n"):
                count += 1
                parse_policy(plain, name)  # raises with all mistakes
    assert count >= 4


def specification() -> dict[str, dict[str, object]]:
    text = (ROLE / "meta/argument_specs.yml").read_text()
    options = yaml.safe_load(text)["argument_specs"]["main"]["options"]
    assert isinstance(options, dict)
    return options


def test_each_variable_of_the_role_is_there():
    known = {*specification(), *(family.name for family in FAMILIES)}
    wrong = [
        f"{name}: {variable}"
        for name, text in texts()
        for variable in re.findall(r"\bovirt_rdma_[a-z_]+", text)
        if variable not in known
    ]
    assert wrong == []


def test_the_roles_page_has_each_variable_with_its_default():
    page = (ROLE / "README.md").read_text()
    rows = dict(re.findall(r"^\| `(ovirt_rdma_\w+)` \| (\S+) \|", page, re.M))
    assert rows.keys() == specification().keys()
    for name, option in specification().items():
        shown = rows[name].strip("`")
        default = "" if shown == "empty" else yaml.safe_load(shown)
        assert default == option["default"], name


EXIT = re.compile(
    r"\b[Ee]xit(?:s|ed)?(?:(?: at once)? with)?(?: codes?:?| status)* \(?(\d+)\b"
)
# Pages about one of the two commands.
OF_HOST = ("host-preparation", "policy", "hooks", "ipoib", "manual/ovirt-rdma-host")
OF_ENGINE = ("engine.md", "host-deploy", "gate", "manual/ovirt-rdma.md", "matrix")


def codes_of(main: object) -> set[str]:
    shown = main.parser().format_help()  # type: ignore[attr-defined]
    return {"0", "129", "143", *re.findall(r"^  (\d+) ", shown, re.MULTILINE)}


def test_each_exit_code_is_one_of_the_command_that_the_page_is_about():
    ours, theirs = codes_of(host), codes_of(engine)
    assert ours != theirs
    wrong = []
    count = 0
    for name, text in texts():
        known = ours | theirs
        if name.startswith(tuple(f"docs/{page}" for page in OF_HOST)):
            known = ours
        if name.startswith(tuple(f"docs/{page}" for page in OF_ENGINE)):
            known = theirs
        for code in EXIT.findall(text):
            count += 1
            if code not in known:
                wrong.append(f"{name}: {code}")
    assert count > 30
    assert wrong == []


@pytest.mark.parametrize(
    ("what", "named"),
    [
        (
            "VDSM",
            {
                "rpm/ovirt-rdma.spec": r"Conflicts: +vdsm < (\S+)",
                "README.md": r"VDSM (\S+) and later",
                "docs/decisions/010-packages.md": r"`Conflicts: vdsm < ([^`]+)`",
                "docs/install.md": r"VDSM (\S+) or later",
                "host/services/enablement.py": r"older than \D*?([0-9.]+[0-9])",
                "storage/vdsm/connection.py": r"VDSM (\S+) and later pass",
            },
        ),
        (
            "ansible-core",
            {
                "rpm/ovirt-rdma.spec": r"Requires: +ansible-core >= (\S+)",
                "host_deploy/meta/runtime.yml": r'requires_ansible: ">=([\d.]+)\.0"',
                "host_deploy/README.md": r"needs ansible-core (\S+) or later",
                "docs/dependencies.md": r"\| ansible-core \|[^\n]*yes, (\S+) or later",
            },
        ),
    ],
)
def test_the_oldest_version_is_the_same_everywhere(what, named):
    """Where one of them is older, a reader prepares a host that is refused."""
    found = {
        file: re.findall(pattern, (TOP / file).read_text(), re.DOTALL)
        for file, pattern in named.items()
    }
    assert all(found.values()), found
    assert len({version for each in found.values() for version in each}) == 1, found


def test_pictures_show_what_the_commands_print_now():
    stale = [
        f"docs/pictures/{name}.svg: make golden"
        for name, drawing in picture.drawings().items()
        if (picture.FOLDER / f"{name}.svg").read_text() != drawing
    ]
    assert stale == []
