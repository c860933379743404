"""Collecting the workloads whose pods policies about tenants refuse: for `autarky doctor`, and for `plan` and `up`
where such policies come to a cluster that is there.

It only looks, at everybody's workloads and at what the policies go by.
"""

from __future__ import annotations

import asyncio

from autarky.decide import records
from autarky.decide.refused import KINDS, POLICIES, Refused, Rules, refused, told_beforehand
from autarky.engine.phase import Warn
from autarky.errors import AutarkyError
from autarky.phases.context import Context
from autarky.render.policies import API, BINDING

LOOK_SECONDS = 20.0
"""For `warnings_of_new_policies`: tenants make as much as they like, and hold up no `up`."""


PAGE = 50
"""Workloads per answer: an object may have more than a megabyte."""


async def find_refused(context: Context) -> list[Refused]:
    """Raises what the API raises. One list after the other: together they could be more than an API server can hold."""
    kube = context.kube()
    rules = Rules(
        classes=await kube.list("scheduling.k8s.io/v1", "PriorityClass"),
        namespaces=await kube.list("v1", "Namespace"),
        bindings=await kube.list(API, BINDING),
    )
    everybodys = [one for kind, api_version in KINDS.items() for one in await kube.list(api_version, kind, page=PAGE)]
    return refused(everybodys, rules)


async def warnings_of_new_policies(context: Context) -> list[Warn]:
    """Which workloads of a cluster that is there lose their pods by policies that it gets now. A new cluster is not
    asked, nor is one that has them. Never raises what the API raises: it stops nothing."""
    if not _is_there(context) or not await context.api_answers():
        return []
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            new = await _new(context)
            sentences = told_beforehand(await find_refused(context), new) if new else []
    except (AutarkyError, TimeoutError) as error:
        why = str(error) or f"it takes more than {LOOK_SECONDS:.0f} s"
        sentences = [
            f"whether new policies refuse pods of what is there could not be looked at: {why} (`autarky doctor` tells)"
        ]
    return [Warn(sentence, in_plan=True) for sentence in sentences]


def _is_there(context: Context) -> bool:
    """By what its hosts remember, or by the record in the API."""
    return context.founded or records.API in context.records


async def _new(context: Context) -> set[str]:
    """Those of the policies that refuse workloads' pods whose binding is not there yet."""
    bound = {one["metadata"]["name"] for one in await context.kube().list(API, BINDING)}
    return set(POLICIES) - bound
