"""The load balancer's configuration, read back section by section."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.control.load_balancer.manifests import script as nllb_script
from autarky.control.load_balancer.node.balancer import voting_members
from autarky.model import patience
from autarky.model.balancer import ApiNode, Balancer, EtcdNode
from autarky.render import node as render_node
from fakes.clusters import a_cluster, inputs_of
from unit.render.rendered import EXTERNAL, some_inputs

SLOTS = ("hosted", "standby", "spare")


def sections(text: str) -> dict[str, list[str]]:
    """ "backend ready" → its lines."""
    result: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith(" "):
            result[name].append(line.strip())
        else:
            name = line
            result[name] = []
    return result


def config(name: str, **cluster) -> dict[str, list[str]]:
    inputs = inputs_of(a_cluster(**cluster))
    return sections(nllb.config(nllb.of_cluster(inputs.cluster, inputs.cluster.node(name))))


def servers(section: list[str]) -> list[str]:
    """Without how often those of other nodes are looked at."""
    found = [line.removeprefix("server ") for line in section if line.startswith("server ")]
    return [line.replace(f" {nllb.REMOTE}", "") for line in found]


@settings(max_examples=25, deadline=None)
@given(some_inputs(), st.data())
def test_etcd_and_its_client_certificate_exist_on_control_nodes_only(inputs, data):
    """On a worker they would be root over all Secrets."""
    node = data.draw(st.sampled_from(inputs.cluster.nodes))
    text = nllb.config(nllb.of_cluster(inputs.cluster, node))
    files = {file.path.rpartition("/")[2]: file for file in nllb.files(inputs, node)}
    serves = node.control_plane and inputs.cluster.external_etcd is None
    assert ("backend etcd" in text) == ("frontend etcd" in text) == (":2378" in text) == serves
    assert ("etcd-ca.crt" in files) == serves
    first = [file.path for file in render_node.leaf_files(inputs, node)] if node.control_plane else []
    assert (nllb.ETCD_CLIENT_PATH in first) == serves
    assert all(file.mode == 0o600 for file in files.values())


@settings(max_examples=25, deadline=None)
@given(some_inputs(), st.data())
def test_every_api_server_of_every_control_node_is_known_everywhere_in_both_slots(inputs, data):
    node = data.draw(st.sampled_from(inputs.cluster.nodes))
    found = sections(nllb.config(nllb.of_cluster(inputs.cluster, node)))
    expected = {f"{member.name}-{slot}" for member in inputs.cluster.control_nodes for slot in SLOTS}
    for backend in ("ready", "alive", "accepting"):
        listed = [server.split()[0] for server in servers(found[f"backend {backend}"])]
        assert len(listed) == len(expected)
        assert set(listed) == expected
    reported = {line.split()[7].removeprefix("/") for line in found["frontend health"] if "srv_is_up" in line}
    members = [server.split()[0] for server in servers(found.get("backend etcd", []))]
    assert reported == expected | {f"alive/{server}" for server in expected} | {f"etcd/{name}" for name in members}


@settings(max_examples=25, deadline=None)
@given(some_inputs(), st.data())
def test_at_boot_connections_wait_for_the_first_server_wherever_they_would_go_first(inputs, data):
    node = data.draw(st.sampled_from(inputs.cluster.nodes))
    found = sections(nllb.config(nllb.of_cluster(inputs.cluster, node)))
    waited_for = {"frontend api": "ready", "frontend api-outside": "ready", "frontend etcd": "etcd"}
    held = {name: line for name, lines in found.items() for line in lines if "lua.hold" in line}
    assert {name: line.split()[3] for name, line in held.items()} == {
        name: backend for name, backend in waited_for.items() if name in found
    }
    for name, line in held.items():
        (delay,) = (one.split()[-1] for one in found[name] if one.startswith("tcp-request inspect-delay"))
        assert int(delay.removesuffix("ms")) > 1000 * float(line.split()[4]), "HAProxy would end the wait first"


def test_a_control_node_prefers_its_own_servers_the_hosted_one_first():
    assert servers(config("n2", controls=3)["backend ready"]) == [
        "n2-hosted 127.0.0.1:7443",
        "n2-standby 127.0.0.1:7444 backup",
        "n2-spare 127.0.0.1:7445 backup",
        "n1-hosted 192.0.2.11:7443 backup",
        "n1-standby 192.0.2.11:7444 backup",
        "n1-spare 192.0.2.11:7445 backup",
        "n3-hosted 192.0.2.13:7443 backup",
        "n3-standby 192.0.2.13:7444 backup",
        "n3-spare 192.0.2.13:7445 backup",
    ]


def test_servers_of_other_nodes_that_are_down_are_looked_at_less_often():
    for backend in ("ready", "etcd"):
        lines = [line for line in config("n2", controls=3)[f"backend {backend}"] if line.startswith("server ")]
        assert [line for line in lines if nllb.REMOTE not in line] == [line for line in lines if "127.0.0.1" in line]


def test_a_worker_spreads_over_all_hosted_servers():
    assert servers(config("n3", controls=2, workers=1)["backend ready"]) == [
        "n1-hosted 192.0.2.11:7443",
        "n1-standby 192.0.2.11:7444 backup",
        "n1-spare 192.0.2.11:7445 backup",
        "n2-hosted 192.0.2.12:7443",
        "n2-standby 192.0.2.12:7444 backup",
        "n2-spare 192.0.2.12:7445 backup",
    ]


def test_a_worker_listens_on_loopback_only():
    worker = config("n2", controls=1, workers=1)
    binds = [line for lines in worker.values() for line in lines if line.startswith("bind ")]
    assert binds == ["bind 127.0.0.1:6443", "bind 127.0.0.1:6444"]


def test_a_control_node_serves_its_neighbours_the_api_and_nothing_else():
    control = config("n1")
    binds = [line for lines in control.values() for line in lines if line.startswith("bind ")]
    assert binds == ["bind 127.0.0.1:6443", "bind :6443", "bind 127.0.0.1:2378", "bind 127.0.0.1:6444"]


@settings(max_examples=25, deadline=None)
@given(some_inputs(), st.data())
def test_whoever_fills_one_port_leaves_the_others_theirs(inputs, data):
    node = data.draw(st.sampled_from(inputs.cluster.nodes))
    found = sections(nllb.config(nllb.of_cluster(inputs.cluster, node)))
    bounds = {
        name: int(line.removeprefix("maxconn "))
        for name, lines in found.items()
        for line in lines
        if line.startswith("maxconn ")
    }
    all_together = bounds.pop("global")
    frontends = {name for name in found if name.startswith("frontend ")}
    assert bounds.keys() == frontends - {"frontend etcd"}
    assert all_together - sum(bounds.values()) >= 2000, "the reserve of etcd"


def test_strangers_are_counted_by_source_and_must_speak_tls_and_the_node_itself_need_not():
    found = config("n1")
    outside, inside = found["frontend api-outside"], found["frontend api"]
    assert [line for line in inside if line.startswith("tcp-request content")] == [
        f"tcp-request content lua.hold ready {patience.HOLD:g}"
    ]
    assert [line for line in outside if line not in inside and not line.startswith(("bind", "maxconn"))] == [
        f"stick-table type ip size {2 * nllb.MOST_OUTSIDE} expire 1m store conn_cur",
        "tcp-request connection track-sc0 src",
        f"tcp-request connection reject if {{ sc0_conn_cur gt {nllb.MOST_OF_ONE_SOURCE} }}",
        "tcp-request content reject unless { req.ssl_hello_type 1 }",
    ]
    assert 2 * nllb.MOST_OF_ONE_SOURCE < nllb.MOST_OUTSIDE, "one source takes no other's place"


def test_ready_servers_come_first_and_live_ones_when_none_is_ready():
    """While etcd is down no server is ready; `livez` without etcd still tells which are there."""
    found = config("n1")
    for frontend in ("frontend api", "frontend api-outside"):
        slots = [f"n1-{slot}" for slot in nllb.SLOTS]
        assert found[frontend][-9:] == [
            *(f"acl some-ready srv_is_up(ready/{server})" for server in slots),
            "use_backend ready if some-ready",
            *(f"acl some-alive srv_is_up(alive/{server})" for server in slots),
            "use_backend alive if some-alive",
            "default_backend accepting",
        ]
    assert "option httpchk GET /readyz" in found["backend ready"]
    assert "option httpchk GET /livez?exclude=etcd" in found["backend alive"]


def test_a_worker_that_stops_still_knows_who_is_ready():
    """HAProxy counts no server of a backend that is being stopped, but still says of each whether it is up."""
    assert "nbsrv" not in nllb.config(Balancer("n1", True, (ApiNode("n1", "192.0.2.11"),)))


def test_what_is_withdrawn_does_not_make_the_backend_of_ready_servers_the_choice():
    """All of its servers have a weight of 0: a connection would find none."""
    away, there = ApiNode("n1", "192.0.2.11", withdrawn=True), ApiNode("n2", "192.0.2.12")
    both = sections(nllb.config(Balancer("n4", False, (away, there))))["frontend api"]
    assert [line for line in both if line.startswith("acl some-ready")] == [
        f"acl some-ready srv_is_up(ready/n2-{slot})" for slot in nllb.SLOTS
    ]
    nobody = sections(nllb.config(Balancer("n4", False, (away,))))["frontend api"]
    assert not [line for line in nobody if "some-ready" in line]
    assert "use_backend alive if some-alive" in nobody


def test_when_no_server_passes_its_checks_each_is_tried_all_the_same():
    """Late checks are no proof of death: a refusal by the balancer would be worse than an attempt."""
    found = config("n1", controls=3)
    assert not [line for line in found["backend accepting"] if "check" in line or "backup" in line]
    assert "retries 18" in found["backend accepting"]


def test_haproxy_itself_cuts_the_sessions_of_a_member_of_several_that_is_down_and_of_no_api_server():
    """One that drains is not ready, and then refuses: down both times, and it still answers what it was asked."""
    found = config("n1", controls=3)
    for backend in ("ready", "alive"):
        assert not [line for line in found[f"backend {backend}"] if "shutdown-sessions" in line]
    assert [line for line in found["backend etcd"] if "on-marked-down shutdown-sessions" in line]
    assert not [line for line in config("n1")["backend etcd"] if "shutdown-sessions" in line]


def test_etcd_members_are_verified_and_ones_own_comes_first():
    etcd = config("n2", controls=3)["backend etcd"]
    assert servers(etcd) == ["n1 192.0.2.11:2379 backup", "n2 127.0.0.1:2379", "n3 192.0.2.13:2379 backup"]
    assert [line for line in etcd if "verify required" in line]


def test_external_etcd_needs_no_balancer():
    assert "backend etcd" not in config("n1", external_etcd=EXTERNAL)


# --- the configuration as a value ----------------------------------------------------------------------------------


def test_a_withdrawn_server_is_checked_gets_nothing_new_and_is_the_last_one_that_is_better_than_none():
    text = nllb.config(
        Balancer("n4", False, (ApiNode("n1", "192.0.2.11", withdrawn=True), ApiNode("n2", "192.0.2.12")))
    )
    found = sections(text)
    withdrawn = [line for line in servers(found["backend ready"]) if line.startswith("n1-")]
    assert [line.split()[0] for line in withdrawn] == ["n1-hosted", "n1-standby", "n1-spare"]
    assert all(line.endswith(" weight 0") for line in withdrawn)
    assert [line.split()[0] for line in servers(found["backend alive"])][:3] == ["n2-hosted", "n2-standby", "n2-spare"]
    assert "n1-hosted 192.0.2.11:7443 backup" in servers(found["backend alive"])


def test_a_control_node_whose_etcd_is_elsewhere_shares_the_load_over_all_members():
    members = (EtcdNode("n1", "192.0.2.11"), EtcdNode("n2", "192.0.2.12"))
    found = sections(nllb.config(Balancer("n4", True, (ApiNode("n1", "192.0.2.11"),), members)))
    assert servers(found["backend etcd"]) == ["n1 192.0.2.11:2379", "n2 192.0.2.12:2379"]


def is_well_formed(text: str, servers_of: Balancer) -> None:
    """HAProxy refuses a configuration with a name that has other characters, or that two servers of a backend have; and
    a name with a line break would be lines of its own."""
    plain = Balancer(
        servers_of.node, True, servers_of.servers, (EtcdNode("a", "192.0.2.11"), EtcdNode("b", "192.0.2.12"))
    )
    found = sections(text)
    assert list(found)[1:] == list(sections(nllb.config(plain)))[1:], "no section but ours"
    words = [server.split() for server in servers(found["backend etcd"])]
    assert sorted(word[1].replace("127.0.0.1", "192.0.2.10") for word in words) == sorted(
        f"{member.address}:{member.port}" for member in servers_of.etcd
    ), "one line for each member"
    assert len({word[0] for word in words}) == len(words)
    assert all(re.fullmatch("[A-Za-z0-9._:-]+", word[0]) and word[2:] in ([], ["backup"]) for word in words)
    reported = [line for line in found["frontend health"] if "etcd/" in line]
    assert reported == [
        f"http-request return status 200 if {{ path /etcd/{word[0]} }} {{ srv_is_up(etcd/{word[0]}) }}"
        for word in words
    ]


NAMES_OF_OTHERS = {
    "a space": ["db 1"],
    "none, of one that has never started": [""],
    "one name twice": ["db", "db"],
    "lines": ["db\nfrontend theirs\n    bind *:1\nbackend b\n    server x 192.0.2.66:1"],
    "an address of another": ["192.0.2.32:2379", ""],
    "what HAProxy interprets": ["{", "${HOME}", "#", '"'],
}


@pytest.mark.parametrize("names", NAMES_OF_OTHERS.values(), ids=NAMES_OF_OTHERS.keys())
def test_whatever_others_call_their_members_each_is_one_server(names: list[str]) -> None:
    """While control nodes join an etcd outside, its members are in the list, by the names that its owner gives them."""
    listed = [{"name": name, "address": f"192.0.2.{31 + n}", "learner": False} for n, name in enumerate(names)]
    members = voting_members(json.dumps([{"name": "n1", "address": "192.0.2.10", "learner": False}, *listed]))
    assert members is not None
    balancer = Balancer("n1", True, (ApiNode("n1", "192.0.2.10"),), members)
    text = nllb.config(balancer)
    is_well_formed(text, balancer)
    assert "n1 127.0.0.1:2379" in servers(sections(text)["backend etcd"])
    assert nllb.parse(text) == balancer


def test_a_member_of_somebody_else_with_a_nodes_name_is_not_taken_for_the_nodes_own() -> None:
    members = (EtcdNode("n1", "192.0.2.10"), EtcdNode("n1", "192.0.2.31"))
    found = sections(nllb.config(Balancer("n1", True, (ApiNode("n1", "192.0.2.10"),), members)))
    assert servers(found["backend etcd"]) == [f"{place} {place}" for place in ("192.0.2.10:2379", "192.0.2.31:2379")]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text() | st.sampled_from(["n1", "n1:second", "192.0.2.32:2379"]), min_size=2, max_size=5))
def test_no_name_of_a_member_makes_a_configuration_that_haproxy_refuses(names: list[str]) -> None:
    members = tuple(EtcdNode(name, f"192.0.2.{31 + number}") for number, name in enumerate(names))
    balancer = Balancer("n9", True, (ApiNode("n9", "192.0.2.10"),), members)
    is_well_formed(nllb.config(balancer), balancer)


def test_one_late_look_does_not_end_a_server_and_the_script_says_whose_sessions_are_cut():
    found = config("n1", controls=3)
    [alive] = [line for line in found["backend alive"] if line.startswith("default-server")]
    assert f"fall {patience.LOOKS_BEFORE_DEAD} " in alive
    assert any(line.startswith("lua-load ") for line in found["global"])
    assert f'drained_after = tonumber("{patience.DRAINED:g}")' in nllb_script.script(in_use="/x", own="127.0.0.1")


def test_the_script_cuts_sessions_before_their_clients_give_up():
    assert patience.CUT + nllb_script.CLOSE_WATCH_SECONDS < patience.SECURE


def test_a_check_of_what_lives_has_all_of_its_interval_and_one_of_what_is_ready_is_quick():
    """With `timeout check`, HAProxy gives a handshake no longer than `timeout connect`: too little for a slow machine.
    That one stays short, since whoever has lost its power does not answer it, and clients wait."""
    found = config("n1", controls=3)
    assert [name for name, lines in found.items() for line in lines if line.startswith("timeout check")] == [
        "backend ready"
    ]
    assert "timeout connect 2000ms" in found["defaults"]
    [alive] = [line for line in found["backend alive"] if line.startswith("default-server")]
    assert f"inter {patience.SLOWEST_ANSWER * 1000:.0f}ms " in alive


@settings(max_examples=50, deadline=None)
@given(some_inputs(), st.data())
def test_a_configuration_says_what_it_was_made_from_and_its_own_name(inputs, data):
    node = data.draw(st.sampled_from(inputs.cluster.nodes))
    balancer = nllb.of_cluster(inputs.cluster, node)
    text = nllb.config(balancer)
    assert nllb.parse(text) == balancer
    assert nllb.config_hash(text)
    other = replace(balancer, servers=(*balancer.servers, ApiNode("other", "192.0.2.99")))
    assert nllb.config_hash(nllb.config(other)) != nllb.config_hash(text)


@pytest.mark.parametrize("text", ["", "global\n", "# made from: ", "# made from: []\n", '# made from: {"node": 1}\n'])
def test_what_does_not_say_what_it_was_made_from_is_unknown(text):
    assert nllb.parse(text) is None
    assert nllb.config_hash(text) == ""
