# SPDX-License-Identifier: GPL-2.0-or-later
"""Check all verbs of ovirt-rdma-host: exit codes, streams, help."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from argparse import ArgumentTypeError
from pathlib import Path

import pytest
from support.command_line import COMMAND, NO_RDMA, RXE, run_process

from ovirt_rdma.cli.host import facts
from ovirt_rdma.cli.parser import number, time_span
from ovirt_rdma.host import __version__
from tools.verbs import verbs

pytestmark = pytest.mark.hypervisor


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "",
            "verbs: facts, check, plan, apply, confirm, revert, history, "
            "explain, policy, nfs, server, watch, fabric, block, enable, disable, "
            "status",
        ),
        ("policy", "verbs: init, check, load, show"),
        ("nfs", "verbs: list, check, health, paths, mount-options"),
        ("mount", "there is no verb 'mount'; verbs: "),
        ("nfs mount", "there is no verb 'mount'; verbs: "),
        ("nfs check", "required: SERVER:/PATH"),
        ("nfs check nas", "export 'nas' is not SERVER:/PATH"),
        ("nfs check :/e", "export ':/e' is not SERVER:/PATH"),
        ("nfs check nas:data", "no rule names an export that is written differently"),
        ("nfs mount-options nas:e", "export 'nas:e' is not SERVER:/PATH"),
        ("nfs mount-options fd00::1:/e", "export 'fd00::1:/e' is not SERVER:/PATH"),
        ("nfs mount-options fd00::1:/e", "fix: write [fd00::1]:/e; no rule names"),
        ("nfs check nas:/e --nfs-version 5", "'5' is none of 3, 4, 4.0, 4.1, 4.2"),
        ("nfs list --exit", "unknown arguments: --exit"),
        ("nfs list extra", "unknown arguments: extra"),
        ("facts -o xml", "'xml' is none of table, json, yaml"),
        ("facts --route-to nas", "--route-to 'nas' is not an IP address"),
        (f"facts --facts {RXE} --route-to 10.0.0.1", "omit one of them"),
        ("check extra", "unknown arguments: extra"),
        ("check --skip NO-SUCH-01", "there is no rule 'NO-SUCH-01'"),
        ("explain", "either the id of a rule or --list"),
        ("explain --list SAMPLE-TSO-01", "either the id of a rule or --list"),
        ("enable --mode nfs", "there is no mode 'nfs'"),
        ("enable --facts x", "unknown arguments: --facts"),
        ("apply --facts x", "unknown arguments: --facts"),
        ("revert --facts x", "unknown arguments: --facts"),
        ("apply a b", "unknown arguments: b"),
        (
            "apply --confirm-timeout 9",
            "'9' is not 10 to 86400 seconds, as 90 or 2min",
        ),
        ("apply --confirm-timeout 86401", "'86401' is not 10 to 86400 seconds"),
        (
            f"apply --confirm-timeout {'9' * 5000}",
            "'99999999999999999999' is not 10 to 86400 seconds",
        ),
        ("apply --confirm-timeout 2x", "'2x' is not 10 to 86400 seconds"),
        ("apply --allow", "unknown arguments: --allow"),
        ("confirm 7", "unknown arguments: 7"),
        ("history 7", "unknown arguments: 7"),
        ("unit", "verbs: netdev, recover, unconfirmed, block, daemon"),
        ("unit netdev", "required: NAME"),
        ("unit unconfirmed x", "invalid int value: 'x'"),
    ],
)
def test_wrong_words(call, words, sentence):
    call(*words.split()).refused(2, sentence)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *[("90", 90), ("90s", 90), ("2min", 120), ("1.5h", 5400), ("0.1", 0.1)],
        *[(text, None) for text in ("", " ", "min", "-5", "+5", "5 x", "20 s")],
        *[(text, None) for text in ("1.5.5", "1M", "1e3", "0x10", "5,5", "2,5min")],
        *[(text, None) for text in ("\u0662\u0665", "nan", "inf", "1h 30min")],
        *[(text, None) for text in ("9" * 5000, "5" * 400 + "!")],
    ],
)
def test_time_spans(text, seconds):
    read = time_span(0, 10**9, float)
    try:
        assert read(text) == seconds
    except ArgumentTypeError:
        assert seconds is None


def test_the_limits_of_a_time_span_are_those_of_the_option():
    read = time_span(10, 86400, int)
    assert [read(text) for text in ("10", "24h", "10.9s")] == [10, 86400, 10]
    for text in ("9.9", "24.1h"):
        with pytest.raises(ArgumentTypeError) as caught:
            read(text)
        said = f"{text!r} is not 10 to 86400 seconds, as 90 or 2min"
        assert str(caught.value) == said


@pytest.mark.parametrize(
    "text", ["", "0", "101", "x", "-1", "+1", " 1", "1_0", "9" * 5000]
)
def test_what_is_no_number_in_its_range(text):
    with pytest.raises(ArgumentTypeError) as caught:
        number(1, 100)(text)
    assert str(caught.value) == f"{text[:20]!r} is not a number from 1 to 100"
    assert [number(1, 100)(text) for text in ("1", "100", "007")] == [1, 100, 7]


@pytest.mark.parametrize(
    ("words", "argument"),
    [
        ("facts --facts", "--facts"),
        ("check --facts", "--facts"),
        ("plan --facts", "--facts"),
        ("plan --out", "--out"),
        ("plan --policy", "--policy"),
        ("nfs list --facts", "--facts"),
        ("nfs list --policy", "--policy"),
        ("nfs check nas:/e --policy", "--policy"),
        ("nfs mount-options nas:/e --policy", "--policy"),
        ("policy show --policy", "--policy"),
        ("policy check", "FILE"),
        ("policy load", "FILE"),
        ("apply", "PLANFILE"),
    ],
)
def test_an_empty_file_name_does_not_stand_for_the_default(call, words, argument):
    call(*words.split(), "").refused(2, f"{argument}: the file name is empty")


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        ("chekc", "did you mean check? see ovirt-rdma-host --help"),
        ("nfs chek", "did you mean check? see ovirt-rdma-host nfs --help"),
        ("zzz", "see ovirt-rdma-host --help"),
        ("check --skipp X", "did you mean --skip? see ovirt-rdma-host check --help"),
        ("check --al=1", "did you mean --all? see ovirt-rdma-host check --help"),
        # --root is for tests.
        ("check --roots /x", "see ovirt-rdma-host check --help"),
        ("help chekc", "did you mean check? see ovirt-rdma-host --help"),
        ("nfs list x", "see ovirt-rdma-host nfs list --help"),
    ],
)
def test_a_mistyped_word(call, words, fix):
    assert call(*words.split()).err.endswith(f"\nfix: {fix}\n")


def test_a_mistyped_choice(call):
    wrong = call("facts", "-o", "jsn")
    assert wrong.err.startswith(
        "ovirt-rdma-host: argument -o/--output: 'jsn' is none of table, json, yaml; "
        "did you mean json?\n"
    )


@pytest.mark.parametrize("verb", ["", "check", "nfs", "nfs list"])
def test_help_is_a_verb_too(call, verb):
    shown = call("help", *verb.split())
    assert (shown.code, shown.err) == (0, "")
    assert shown.out == call(*verb.split(), "--help").out


@pytest.mark.parametrize("verb", verbs("ovirt-rdma-host"))
def test_help_of_each_verb_has_exit_codes_and_an_example(call, verb):
    shown = call(*verb.split(), "--help")
    assert (shown.code, shown.err) == (0, "")
    assert "exit codes: 0 " in shown.out
    assert f"examples:\n  ovirt-rdma-host {verb}" in shown.out
    assert "--root" not in shown.out


def test_help_and_version(call):
    shown = call("--help")
    assert shown.code == 0
    # test_wrong_words has them by name.
    for verb in verbs("ovirt-rdma-host"):
        assert f"\n    {verb.split()[0]} " in shown.out
    assert "130" in shown.out
    assert "unit" not in shown.out
    assert call("--version").out == f"ovirt-rdma-host {__version__}\n"


BROKEN_FACTS = [
    ("", "it is not JSON: column 1: "),
    ('{"schema_version": 9}', "kind is missing, not 'facts'"),
    ('{"schema_version": 9, "kind": "facts"}', "schema version 9; this one reads 2"),
    ('{"schema_version": 1, "kind": "status"}', "kind is 'status', not 'facts'"),
    ('{"schema_version": 2, "kind": "facts"}', "hostname is missing"),
]


@pytest.mark.parametrize(("text", "sentence"), BROKEN_FACTS)
@pytest.mark.parametrize("verb", ["facts", "check", "plan", "nfs list"])
def test_broken_facts(host, verb, text, sentence):
    path = host.root / "facts.json"
    path.write_text(text)
    host(*verb.split(), "--facts", str(path)).refused(1, str(path), sentence, "fix: ")


BROKEN_POLICIES = [
    (b"version: 2\n", ":1: version: 2 is unknown; allowed: 1"),
    (b"version: 1\nnfs: [1\n", ":3: not valid YAML"),
    (b"version: 1\n# \xff\n", ":2: the byte 0xff is not UTF-8"),
    (
        b"version: 1\nnfs:\n  rules:\n    - server: nas\n      transport: rdma\n",
        ":5: nfs.rules[1].transport",
    ),
]


@pytest.mark.parametrize(("text", "sentence"), BROKEN_POLICIES)
@pytest.mark.parametrize(
    "verb",
    [
        "check --policy",
        "plan --policy",
        "policy show --policy",
        "nfs list --policy",
        "nfs check 10.0.0.1:/e --policy",
        "nfs mount-options 10.0.0.1:/e --policy",
        "policy load",
    ],
)
def test_broken_policy(host, verb, text, sentence):
    path = host.root / "p.yaml"
    path.write_bytes(text)
    host(*verb.split(), str(path)).refused(3, f"{path}{sentence}")


@pytest.mark.parametrize(
    "verb",
    [
        "check",
        "plan",
        "policy show",
        "nfs list",
        "nfs check 10.0.0.1:/e",
        "nfs mount-options s:/e",
    ],
)
def test_broken_stored_policy(host, verb):
    path = host.root / "var/lib/ovirt-rdma/policy.json"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    host(*verb.split()).refused(
        1, "the stored policy is invalid", "fix: load the policy again"
    )


def test_an_error_after_output_leaves_stdout_empty(call, monkeypatch):
    def half_way(self, context):
        context.output.line("half of it")
        raise RuntimeError("the disk\nis gone")

    monkeypatch.setattr(facts.ShowFacts, "run", half_way)
    monkeypatch.delenv("OVIRT_RDMA_DEBUG", raising=False)
    result = call("facts")
    result.refused(
        1,
        "this is a bug, please report it: RuntimeError: the disk\\nis gone",
        "OVIRT_RDMA_DEBUG=1",
    )
    monkeypatch.setenv("OVIRT_RDMA_DEBUG", "1")
    result = call("facts")
    assert (result.code, result.out) == (1, "")
    assert "Traceback" in result.err
    assert "half_way" in result.err


def test_a_reader_that_leaves_early_is_no_error():
    shell = f"{sys.executable} -m ovirt_rdma.cli.host.main"
    for words in (f"facts --facts {RXE} -o json", "--help"):
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {shell} {words} | true"],
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")


def test_the_exit_code_survives_a_reader_that_leaves_early(tmp_path):
    policy = tmp_path / "p.yaml"
    policy.write_text(REQUIRE)
    reading, writing = os.pipe()
    os.close(reading)
    words = ["nfs", "list", "--exit-code", "--facts", NO_RDMA, "--policy", str(policy)]
    result = run_process(*words, stdout=writing)
    os.close(writing)
    assert (result.code, result.err) == (3, "")


REQUIRE = """\
version: 1
nfs:
  rules:
    - server: 10.0.0.1
      transport: require-rdma
"""


def test_a_full_disk_is_a_sentence():
    with Path("/dev/full").open("wb") as full:
        result = run_process("facts", "--facts", RXE, stdout=full)
    result.refused(1, "the result cannot be written to stdout: No space left on device")


@pytest.mark.parametrize("closed", ["1", "2", "1,2"])
def test_closed_streams(closed):
    close = " ".join(f"{number}>&-" for number in closed.split(","))
    done = subprocess.run(
        ["bash", "-c", f"{' '.join(COMMAND)} facts --facts {RXE} {close}"],
        capture_output=True,
        check=False,
    )
    assert b"Traceback" not in done.stderr
    assert done.returncode == (1 if "1" in closed else 0)


def test_interrupt_ends_quietly(tmp_path):
    fifo = tmp_path / "p.yaml"
    os.mkfifo(fifo)
    child = subprocess.Popen(
        [*COMMAND, "policy", "show", "--policy", str(fifo)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    writer = _open_for_reader(fifo)
    out, err = _interrupted(child)
    os.close(writer)
    assert (child.returncode, out, err) == (130, b"", b"")


def _interrupted(child: subprocess.Popen) -> tuple[bytes, bytes]:
    # Repeatedly: a signal right before a read does not end that read.
    for _ in range(20):
        child.send_signal(signal.SIGINT)
        try:
            return child.communicate(timeout=1)
        except subprocess.TimeoutExpired:
            continue
    child.kill()
    return child.communicate()


def _open_for_reader(fifo) -> int:
    """Open a FIFO for writing once another process reads it."""
    deadline = time.monotonic() + 120
    while True:
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:  # ENXIO: there is no reader yet
            if error.errno != errno.ENXIO or time.monotonic() > deadline:
                raise
        time.sleep(0.01)
