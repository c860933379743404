"""What is wrong with etcd: its disks, its databases, the number of its members, and its backups."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from autarky.doctor import evidence
from autarky.doctor.diagnosis import (
    ALARMS,
    ENTRIES_BEHIND,
    RESTARTS_MEMBERS,
    ClusterEvidence,
    Database,
    NodeEvidence,
    Syncs,
    diagnose,
)
from autarky.doctor.evidence import read_said
from autarky.programs import program

WELL = NodeEvidence("n1", units={"containerd": True, "kubelet": True}, free={"/": 2**40}, balanced={"n1-hosted": True})


def whats(cluster: ClusterEvidence) -> list[str]:
    return [f"{finding.subject}: {finding.what}" for finding in diagnose(cluster)]


# --- disks ----------------------------------------------------------------------------------------------------------


def test_a_disk_that_syncs_slowly_is_named():
    [finding] = diagnose(ClusterEvidence((replace(WELL, fsync=Syncs(0.48)),)))
    assert finding.what == "etcd's disk is slow"
    assert finding.evidence == "one sync of a hundred took 480 ms or more; less than 10 ms are normal"
    [finding] = diagnose(ClusterEvidence((replace(WELL, fsync=Syncs(0.48, few=True)),)))
    assert finding.evidence == "a sync took 480 ms on average; less than 10 ms are normal"
    assert diagnose(ClusterEvidence((replace(WELL, fsync=Syncs(0.004)),))) == []


def syncs(quick: int, slow: int) -> str:
    """As the script prints them: of 1 ms, and of 400 ms."""
    total = f"sum:{quick * 0.001 + slow * 0.4} count:{quick + slow}"
    return f"0.001:{quick} 0.256:{quick} 0.512:{quick + slow} +Inf:{quick + slow} {total}"


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ((900, 0), (998, 2), True),  # 5.0 ms on average
        ((900, 90), (1000, 90), False),  # it was slow once
        ((0, 0), (1000, 2), False),
        ((0, 0), (2, 8), True),  # fewer than a percentile is made of
        ((0, 0), (9, 1), False),
    ],
)
def test_a_disk_is_judged_by_its_slowest_syncs_while_it_is_observed(before, after, named):
    """An average hides them: a leader misses its heartbeats once in a hundred writes."""
    said = read_said(f"syncs {syncs(*before)} / {syncs(*after)}", ())
    assert said.fsync is not None
    assert bool(diagnose(ClusterEvidence((replace(WELL, fsync=said.fsync),)))) == named
    assert said.fsync.few == (sum(after) - sum(before) < 20)


@pytest.mark.parametrize(
    "line",
    [
        f"syncs {syncs(5, 5)} / {syncs(5, 5)}",
        f"syncs {syncs(5, 5)} /",
        f"syncs {syncs(5, 5)}",
        "syncs / /",
        "syncs sum:1 count:2 / sum:x count:9",
        "syncs sum:1 count:2 / sum:nan count:nan",
    ],
)
def test_where_nothing_was_synced_nothing_is_said_of_a_disk(line):
    assert read_said(line, ()).fsync is None


# As etcd 3.6 answers.
METRICS = """\
# TYPE etcd_disk_wal_fsync_duration_seconds histogram
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.001"} 12
etcd_disk_wal_fsync_duration_seconds_bucket{le="8.192"} 1.4e+01
etcd_disk_wal_fsync_duration_seconds_bucket{le="+Inf"} 14
etcd_disk_wal_fsync_duration_seconds_sum 0.25
etcd_disk_wal_fsync_duration_seconds_count 14
etcd_disk_wal_write_bytes_total 9
# TYPE etcd_mvcc_db_total_size_in_bytes gauge
etcd_mvcc_db_total_size_in_bytes 1.5478784e+07
etcd_mvcc_db_total_size_in_use_in_bytes 4096
# TYPE etcd_server_proposals_applied_total gauge
etcd_server_proposals_applied_total 81234
etcd_server_proposals_committed_total 81235
# TYPE etcd_server_quota_backend_bytes gauge
etcd_server_quota_backend_bytes 2.147483648e+09
"""
WELL_ANSWER, FULL_ANSWER = '{"health":"true","reason":""}', '{"health":"false","reason":"ALARM NOSPACE"}\n'


def script_says(*, health: str = WELL_ANSWER, **values: object) -> str:
    """What the script prints beside a member that answers so."""

    class Member(BaseHTTPRequestHandler):
        def do_GET(self):  # as the library calls it
            self.send_response(503 if self.path == "/health" and health != WELL_ANSWER else 200)
            self.end_headers()
            self.wfile.write({"/metrics": METRICS, "/health": health}.get(self.path, "ok\n").encode())

        def log_message(self, *_): ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Member) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        paths = (
            "units",
            "disks",
            "manifests",
            "configuration_path",
            "configuration_file",
            "fence",
            "copy",
            "api_ports",
        )
        given = {
            **dict.fromkeys(paths, ""),
            "copy": "",
            "kubelets": "/nowhere",
            "slot_lock": "/nowhere/lock",
            "kept": "/nowhere/",
            "peer_ca": "/nowhere/peer-ca.crt",
            "balancer_port": 1,
            "sync_seconds": 0,
            **values,
        }
        script = program(evidence.__file__, "doctor.sh", etcd_port=server.server_port, **given)
        said = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=60).stdout
        server.shutdown()
    return said


def test_the_script_prints_etcds_figures_as_they_are_read_here():
    [line] = [line for line in script_says().splitlines() if line.startswith("syncs ")]
    figures = "0.001:12 8.192:1.4e+01 +Inf:14 sum:0.25 count:14"
    assert line == f"syncs {figures} / {figures}"


def test_what_the_script_finds_of_a_database_and_its_alarms_is_read_here():
    """`tests/contract/etcd/test_doctors_script.py` asks a real member."""
    said = read_said(script_says(health=FULL_ANSWER), ())
    assert said.database == {"size": 15478784.0, "quota": 2147483648.0, "applied": 81234.0}
    assert (said.etcd, said.alarms) == (200, ["NOSPACE"])
    assert read_said(script_says(), ()).alarms == []


# --- a recovery that was interrupted --------------------------------------------------------------------------------


def test_a_fence_is_named_and_not_that_the_member_behind_it_does_not_answer():
    assert read_said("fence -", ()).fenced
    fenced = (replace(WELL, fenced=True, etcd=None), replace(WELL, name="n2"), replace(WELL, name="n3"))
    found = [one for one in diagnose(ClusterEvidence(fenced)) if one.subject == "n1"]
    assert ["recovery of etcd keeps its member from starting" in one.what for one in found] == [True]
    assert "--abandon" in found[0].next


def test_a_copy_that_was_interrupted_is_named_on_a_control_node():
    assert read_said("copy -", ()).copied
    others = (replace(WELL, name="n2"), replace(WELL, name="n3"))
    [found] = diagnose(ClusterEvidence((replace(WELL, copied=True), *others)))
    assert found.subject == "n1"
    assert "etcd migrate -f FILE --copy" in found.next
    assert diagnose(ClusterEvidence((WELL, *others, NodeEvidence("n4", control_plane=False, copied=True)))) == []


# --- former data ----------------------------------------------------------------------------------------------------


def test_former_data_of_etcd_is_named_where_it_lies_on_a_worker():
    """Whoever has its disk has every Secret, and is nobody who may have them."""
    assert read_said("kept -\nkept -\n", ()).kept == 2
    worker = NodeEvidence("n2", control_plane=False, has_etcd=False, kept=1)
    [found] = diagnose(ClusterEvidence((replace(WELL, kept=2), worker)))
    assert (found.subject, found.next) == ("n2", "on n2, once nobody needs that data: rm -rf /var/lib/etcd/kept.*")


def test_the_script_counts_the_directories_with_former_data(tmp_path):
    for name in ("kept.1", "kept.change", "member"):
        (tmp_path / name).mkdir()
    said = script_says(kept=tmp_path / "kept.")
    assert read_said(said, ()).kept == 2


# --- what is left of another CA ---------------------------------------------------------------------------------------


def test_a_member_that_still_accepts_peers_of_a_ca_that_was_given_up_is_named_with_what_restarts_it():
    """Whoever has that CA could speak as a member."""
    assert read_said("trusts -", ()).trusts_others
    cluster = ClusterEvidence((replace(WELL, trusts_others=True), replace(WELL, name="n2"), replace(WELL, name="n3")))
    [found] = diagnose(cluster)
    assert (found.subject, found.what) == ("n1", "its etcd member accepts peers by a CA that was taken from its file")
    assert RESTARTS_MEMBERS in found.next
    worker = NodeEvidence("n4", control_plane=False, has_etcd=False, trusts_others=True)
    assert diagnose(ClusterEvidence((WELL, replace(WELL, name="n2"), replace(WELL, name="n3"), worker))) == []


@pytest.fixture
def runs_etcd(tmp_path: Path) -> Iterator[Path]:
    """Returns the file with its peers' CA. A program under the name of etcd; another one has another file."""
    trusted, program_ = tmp_path / "peer-ca.crt", tmp_path / "etcd"
    trusted.write_text("CA")
    (tmp_path / "second.crt").write_text("CA")
    program_.write_text("#!/bin/sh\nsleep 60 & wait\n")
    program_.chmod(0o755)
    running = subprocess.Popen(
        [program_, f"--peer-trusted-ca-file={trusted}", "--name=n1"], start_new_session=True, stdout=subprocess.DEVNULL
    )
    yield trusted
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()


@pytest.mark.parametrize(
    ("name", "later", "found"),
    [
        ("peer-ca.crt", -3600, False),
        ("peer-ca.crt", 0, False),
        ("peer-ca.crt", 60, True),
        ("second.crt", 60, False),
        ("absent.crt", 0, False),
    ],
)
def test_the_script_compares_since_when_the_member_runs_and_when_the_file_was_written(
    runs_etcd: Path, name: str, later: int, found: bool
) -> None:
    path = runs_etcd.parent / name
    if path.exists():
        os.utime(path, (time.time() + later,) * 2)
    assert read_said(script_says(peer_ca=path), ()).trusts_others == found


# --- how many members -----------------------------------------------------------------------------------------------


def members(count: int) -> tuple[NodeEvidence, ...]:
    return tuple(replace(WELL, name=f"n{number}") for number in range(1, count + 1))


@pytest.mark.parametrize("count", [2, 4])
def test_an_even_number_of_members_is_named(count):
    """They survive the loss of no more than one fewer do."""
    [finding] = diagnose(ClusterEvidence(members(count)))
    assert (finding.subject, finding.what) == ("etcd", "etcd has an even number of members")
    assert f"{count} members" in finding.evidence
    assert f"as {count - 1} would" in finding.evidence


def test_an_odd_number_is_not_named_nor_one_that_nobody_knows():
    for count in (1, 3, 5):
        assert diagnose(ClusterEvidence(members(count))) == []
    worker = replace(WELL, name="w", control_plane=False, has_etcd=False)
    assert diagnose(ClusterEvidence((*members(3), worker))) == []
    assert not [what for what in whats(ClusterEvidence(members(2), api="no connection")) if "even" in what]


def test_where_etcd_is_hosted_the_operator_says_it_who_knows_which_nodes_have_a_member():
    """Of six control nodes five have one."""
    hosted = frozenset({"etcd"})
    assert diagnose(ClusterEvidence(members(6), hosted=hosted)) == []
    said = {"EtcdEvenCount": "etcd should have 4 members (n1, n2, n3, n4)"}
    [finding] = diagnose(ClusterEvidence(members(6), hosted=hosted, conditions=said))
    assert (finding.what, finding.evidence) == ("etcd has an even number of members", said["EtcdEvenCount"])


# --- databases ------------------------------------------------------------------------------------------------------


def test_a_database_that_is_nearly_full_is_named():
    [finding] = diagnose(ClusterEvidence((replace(WELL, database=Database(900 << 20, 1 << 30)),)))
    assert finding.what == "etcd's database is nearly full"
    assert finding.evidence == "900 of 1,024 MiB"
    assert "autarky etcd defrag" in finding.next
    for database in (Database(700 << 20, 1 << 30), Database(900 << 20)):
        assert diagnose(ClusterEvidence((replace(WELL, database=database),))) == []


@pytest.mark.parametrize(("lacks", "behind"), [(ENTRIES_BEHIND, []), (ENTRIES_BEHIND + 1, ["n2"])])
def test_a_member_that_lacks_much_of_the_log_is_named(lacks, behind):
    nodes = [replace(WELL, name=name) for name in ("n1", "n2", "n3")]
    applied = (80_000, 80_000 - lacks, 0)  # of the third nothing is known
    seen = tuple(replace(n, database=Database(applied=one)) for n, one in zip(nodes, applied, strict=True))
    found = [one for one in diagnose(ClusterEvidence(seen)) if one.what == "its etcd member is behind"]
    assert [one.subject for one in found] == behind


@pytest.mark.parametrize("kind", ALARMS)
def test_an_alarm_of_etcd_is_named_once(kind):
    nodes = tuple(replace(WELL, name=name, alarms=(kind,)) for name in ("n1", "n2", "n3"))
    found = [one for one in diagnose(ClusterEvidence(nodes)) if kind in one.evidence]
    assert [(one.what, one.evidence) for one in found] == [(ALARMS[kind][0], f"alarm {kind}, reported by n1, n2, n3")]


def test_what_a_host_says_of_its_database_is_understood_or_skipped():
    said = read_said(
        "database size 1.5478784e+07\ndatabase quota 2147483648\ndatabase applied nan\ndatabase x 1\n"
        "alarm NOSPACE\nalarm NOSPACE\nalarm x\ndatabase size 1 2",
        (),
    )
    assert said.database == {"size": 15478784.0, "quota": 2147483648.0}
    assert said.alarms == ["NOSPACE"]


# --- backups --------------------------------------------------------------------------------------------------------


def test_backups_that_are_overdue_are_named():
    said = {"BackupsCurrent": "nightly: backups are overdue: the last one is nightly-20261101-030000"}
    [finding] = diagnose(ClusterEvidence((WELL,), conditions=said))
    assert (finding.what, finding.evidence) == ("backups are overdue", said["BackupsCurrent"])
    assert finding.next == "autarky kubectl describe controlplane cluster"
