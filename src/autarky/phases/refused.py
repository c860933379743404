"""Collecting what `autarky doctor` judges workloads by: everybody's, and what the policies about tenants go by.

It only looks. Raises what the API raises.
"""

from __future__ import annotations

import asyncio

from autarky.decide.refused import KINDS, Refused, Rules, refused
from autarky.phases.context import Context
from autarky.render.policies import API, BINDING


async def find_refused(context: Context) -> list[Refused]:
    kube = context.kube()
    classes, namespaces, bindings, *workloads = await asyncio.gather(
        kube.list("scheduling.k8s.io/v1", "PriorityClass"),
        kube.list("v1", "Namespace"),
        kube.list(API, BINDING),
        *(kube.list(api_version, kind) for kind, api_version in KINDS.items()),
    )
    everybodys = [one for of_a_kind in workloads for one in of_a_kind]
    return refused(everybodys, Rules(classes, namespaces, bindings))
