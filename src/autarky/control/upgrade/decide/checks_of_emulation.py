"""Checks before an upgrade with a soak: whether the new binaries could emulate the minor that runs. Pure.

What they would not understand of the command lines at all is found by `commands`. What emulation itself refuses cannot
run now: a gate or an API of a later minor than the emulated one, which is the one that runs.
"""

from __future__ import annotations

from collections.abc import Iterator

from autarky.control.common.emulation import EMULATING, FLAG, FORWARD, OPTION, can_soak, given, means, takes_the_flag
from autarky.control.common.shapes import items, mapping, plain, text, within
from autarky.control.common.skew import image_version, minor_of
from autarky.control.upgrade.decide.observed import Finding, Seen
from autarky.control.upgrade.decide.surface import surface_of
from autarky.model.components import API_SERVER


def findings(seen: Seen) -> Iterator[Finding]:
    """Why the new binaries could not emulate what runs, where a soak is asked for."""
    if not seen.soak or not can_soak(seen.runs, seen.wanted):
        return
    without = f"or upgrade without a soak: `autarky upgrade {str(seen.wanted).removeprefix('v')} --soak 0`"
    surface = surface_of(seen.wanted)
    for component in EMULATING:
        template = within(seen.workloads.get(component), "spec", "template")
        if template is None:
            continue
        needed = (FLAG, FORWARD) if component == API_SERVER else (FLAG,)
        for flag in needed:
            if surface is not None and flag not in surface.flags.get(component, {}):
                yield Finding("emulation", f"{component} {seen.wanted} has no flag --{flag}", without[3:])
        for value in given(template, component):
            if seen.emulated and means(value, seen.emulated):
                continue  # the plan's own: a corrected one goes on with it
            sentence = f"{component} has {OPTION}={plain(value)}, which somebody has set"
            yield Finding("emulation", sentence, f"remove it from its command line, {without}")
        if not takes_the_flag(template, component):
            sentence = f"the command line of {component} starts it by something else, which may not pass {OPTION} on"
            yield Finding("emulation", sentence, f"write the program and each flag as words of their own, {without}")
    yield from _too_late(seen)


def _too_late(seen: Seen) -> Iterator[Finding]:
    template = within(seen.workloads.get(API_SERVER), "spec", "template")
    has = image_version(_image_of(template, API_SERVER))
    if has is not None and minor_of(has) >= minor_of(seen.wanted):
        sentence = f"the API servers are of {has} already, and emulate nothing: there is no soak"
        yield Finding("emulation", sentence, "set their image back first for one", warning=True)


def _image_of(template: object, component: str) -> str:
    found = (mapping(one) for one in items(within(template, "spec", "containers")))
    return next((text(one.get("image")) for one in found if one.get("name") == component), "")
