"""Collecting the workloads whose pods are refused by policies about tenants: for `autarky doctor`, and for `plan` and
`up` where an existing cluster gets such policies.

It only looks, at everybody's workloads and at what the policies depend on.
"""

from __future__ import annotations

from autarky.control.cluster_file.decide import records
from autarky.control.guards.decide import KINDS, POLICIES, Refused, Rules, in_order, refused, sentences_beforehand
from autarky.control.guards.manifests.policies import API, BINDING
from autarky.engine.phase import Warn
from autarky.errors import AutarkyError
from autarky.phases.context import Context
from autarky.phases.looking import in_time


async def find_refused(context: Context) -> list[Refused]:
    """Raises what the API raises, and Unreachable where it takes too long: tenants can create any number of
    workloads of any size, and must hold up nobody. One list after the other, and each workload is judged as it comes:
    together they could be more than this machine, or an API server, can hold."""
    async with in_time():
        kube, found = context.kube(), list[Refused]()
        rules = Rules(
            classes=await kube.list("scheduling.k8s.io/v1", "PriorityClass"),
            namespaces=await kube.list("v1", "Namespace"),
            bindings=await kube.list(API, BINDING),
        )
        for kind, api_version in KINDS.items():
            async for workload in kube.each(api_version, kind):
                found += refused([workload], rules)
        return in_order(found)


async def warnings_of_new_policies(context: Context) -> list[Warn]:
    """Which workloads of an existing cluster get no more pods because of policies that it gets now. A new cluster is
    not asked, nor is one that has them. Never raises what the API raises: it stops nothing."""
    if not _is_there(context) or not await context.api_answers():
        return []
    try:
        async with in_time():
            new = await _new(context)
            sentences = sentences_beforehand(await find_refused(context), new) if new else []
    except AutarkyError as error:
        why = f"{error} (`autarky doctor` looks again)"
        sentences = [f"could not check whether new policies refuse pods of existing workloads: {why}"]
    return [Warn(sentence, in_plan=True) for sentence in sentences]


def _is_there(context: Context) -> bool:
    """By what its hosts remember, or by the record in the API."""
    return context.founded or records.API in context.records


async def _new(context: Context) -> set[str]:
    """Those of the policies that refuse workloads' pods whose binding is not there yet."""
    bound = {one["metadata"]["name"] for one in await context.kube().list(API, BINDING)}
    return set(POLICIES) - bound
