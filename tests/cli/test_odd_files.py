# SPDX-License-Identifier: GPL-2.0-or-later
"""No verb hangs on files that VDSM's user puts in place of files that root reads."""

from __future__ import annotations

import pytest
from support.host.daemon_task import TaskRuns
from support.odd_files import KINDS, SAID, bounded, put

from ovirt_rdma.host.daemon.tasks import Capabilities
from ovirt_rdma.host.paths import DEGRADED_JSON, DROPIN_LINK, DROPIN_SOURCE, under

NET = "/var/lib/vdsm/{}/netconf/nets/storage"
CONF = "/run/vdsm/vdsm.conf.d/50.conf"
READS = {
    DEGRADED_JSON: [("facts",), ("check",), ("plan",), ("nfs", "list"), ("status",)],
    NET.format("staging"): [("facts",), ("check",), ("plan",), ("apply",), ("revert",)],
    NET.format("persistence"): [("facts",)],
    CONF: [("status",)],
}


def signature(path):
    found = path.lstat()
    return found.st_mode, found.st_uid, found.st_ino, found.st_ctime_ns


def told(result, path):
    """Return how often a result mentions ``path``, in its text or document."""
    return result.err.count(f"{path} ") or result.out.count(f"{path} ")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", [DEGRADED_JSON, NET.format("staging")])
def test_facts_say_it_once_and_are_complete_otherwise(ready, path, kind):
    whole = ready("facts", "-o", "json").document
    put(under(ready.root, path), kind)
    with bounded():
        result = ready("facts", "-o", "json")
    assert result.code == 0
    facts = result.document
    about = [one for one in facts["problems"] if path in one]
    assert len(about) == 1
    if SAID[kind]:
        assert about == [f"{path} cannot be read: {SAID[kind]}"]
    # A network that cannot be read may use any netdev.
    unknown = {"netdev": None, "purpose": "unknown", "what": about[0]}
    uses = [unknown] if path == NET.format("staging") else []
    assert facts == {
        **whole,
        "problems": facts["problems"],
        "netdev_uses": [*whole["netdev_uses"], *uses],
    }


@pytest.mark.parametrize(
    ("path", "words"), [(path, words) for path in READS for words in READS[path]]
)
def test_no_verb_waits(ready, path, words):
    put(under(ready.root, path), "pipe")
    if path == CONF:  # which is read in mode vdsmd
        under(ready.root, DROPIN_LINK).parent.mkdir(parents=True)
        under(ready.root, DROPIN_LINK).symlink_to(DROPIN_SOURCE)
    with bounded():
        result = ready(*words)
    # A step that takes a link down is refused where its users are unknown.
    assert result.code in (0, 3, *([4] if words == ("apply",) else []))
    if words == ("facts",) and path not in (DEGRADED_JSON, CONF):
        assert told(result, path) == 2  # as a problem, and as an unknown user
    elif words not in (("revert",), ("apply",)):  # which show what they did
        assert told(result, path) == 1


@pytest.mark.parametrize("folder", ["/run/ovirt-rdma/mounts", "/var/lib/vdsm/staging"])
def test_a_folder_of_theirs_that_is_a_link(ready, folder):
    place = under(ready.root, folder)
    place.parent.mkdir(parents=True, exist_ok=True)
    if folder.endswith("staging"):
        place.symlink_to("/etc")
    else:
        place.mkdir()
        under(ready.root, DEGRADED_JSON).symlink_to("/etc/shadow")
    with bounded():
        problems = ready("facts", "-o", "json").document["problems"]
    assert len([one for one in problems if folder in one and "link" in one]) == 1


def test_root_writes_nothing_where_they_may(ready):
    """Neither there, nor through links that they have put there."""
    theirs = [
        under(ready.root, "/run/ovirt-rdma/mounts"),
        under(ready.root, "/run/vdsm"),
    ]
    secret = ready.root / "secret"
    secret.write_text("root's")
    for folder in theirs:
        folder.mkdir(parents=True)
        for name in ("degraded.json", ".degraded.json.abcdefgh", "lock", "caps.json"):
            (folder / name).symlink_to(secret)
        put(folder / "pipe", "pipe")

    def seen():
        places = [secret, *theirs, *(p for f in theirs for p in f.iterdir())]
        return [(str(p), signature(p)) for p in sorted(places)]

    before = seen()
    for words in (
        ("enable", "--mode", "host"),
        ("apply",),
        ("unit", "recover"),
        ("revert",),
        ("policy", "load", str(ready.root / "p.yaml")),
        ("disable",),
    ):
        with bounded():
            assert ready(*words).code == 0, words
        if words[0] == "apply":
            with bounded():
                task = Capabilities(str(ready.root), ready.fake.run)
                TaskRuns(task, ready.root).run()
        assert seen() == before, words


def test_a_worker_of_a_hook_does_not_wait(ready):
    from ovirt_rdma.host.services.hook_runs import live_run

    put(under(ready.root, NET.format("staging")), "pipe")
    said: list[str] = []
    with bounded():
        live_run(ready.root, "a hook", said.append, run=ready.fake.run)
    assert said
