"""The checks before an upgrade with a soak: whether the new binaries could emulate the minor that runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from autarky.control.common.emulation import EMULATING
from autarky.control.upgrade.decide import checks_of_emulation
from autarky.control.upgrade.decide.checks import Finding
from autarky.control.upgrade.decide.observed import Seen
from autarky.control.upgrade.decide.surface import Surface, surface_of
from autarky.model.components import API_SERVER, KUBE_PROXY, SCHEDULER
from autarky.model.versions import Version
from unit.control.upgrade.healthy import PATCH, RUNS, WANTED, Object, a_workload, image, seen


def a_command(component: str, *words: str, version: Version = RUNS) -> Object:
    live = a_workload(component, image(component, version))
    live["spec"]["template"]["spec"]["containers"][0]["command"] = [component, *words]
    return live


def cluster(*changed: Object, soak: int = 60) -> Seen:
    live = {name: a_command(name) for name in (*EMULATING, KUBE_PROXY)}
    return replace(seen(workloads=live | {one["metadata"]["name"]: one for one in changed}), soak=soak)


def found(given: Seen) -> Sequence[Finding]:
    return list(checks_of_emulation.findings(given))


def test_nothing_is_found_where_everything_can_emulate() -> None:
    assert found(cluster()) == []


@pytest.mark.parametrize("flag", ["--emulated-version=1.36", "--emulated-version=kube=1.35"])
def test_a_flag_of_somebody_else_is_found_with_both_ways_on(flag: str) -> None:
    [finding] = found(cluster(a_command(SCHEDULER, flag)))
    assert finding.sentence == f"kube-scheduler has {flag}, which somebody has set"
    assert "autarky upgrade 1.37.1 --soak 0" in finding.fix
    assert not finding.warning


def test_it_is_nobodys_business_where_nothing_is_to_soak() -> None:
    odd = a_command(SCHEDULER, "--emulated-version=1.35")
    assert found(cluster(odd, soak=0)) == []
    assert found(replace(cluster(odd), wanted=PATCH)) == []


def test_a_script_that_starts_the_program_is_refused() -> None:
    live = a_workload(API_SERVER)
    live["spec"]["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", "exec kube-apiserver"]
    [finding] = found(cluster(live))
    assert "may not pass --emulated-version on" in finding.sentence


def test_a_version_that_does_not_know_the_flag_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(version: Version) -> Surface | None:
        real = surface_of(version)
        assert real is not None
        flags = {
            name: {one: flag for one, flag in all_.items() if "emulat" not in one} for name, all_ in real.flags.items()
        }
        return replace(real, flags=flags)

    monkeypatch.setattr(checks_of_emulation, "surface_of", without)
    said = [one.sentence for one in found(cluster())]
    assert said[:2] == [
        f"kube-apiserver {WANTED} has no flag --{name}" for name in ("emulated-version", "emulation-forward-compatible")
    ]
    assert len(said) == len(EMULATING) + 1


def test_api_servers_that_were_set_by_hand_are_too_late_for_a_soak() -> None:
    [finding] = found(cluster(a_command(API_SERVER, version=WANTED)))
    assert (finding.warning, "there is no soak" in finding.sentence) == (True, True)
