"""The parts of the cluster file that say how kubelets change. In the ControlPlane object they have the same shape."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, StrictBool, StrictInt, model_validator

from autarky.config import rules, syntax
from autarky.config.part import Part
from autarky.config.syntax import raise_all
from autarky.model import kubelets
from autarky.model.versions import Version

ImageReference = Annotated[str, Field(pattern=f"^{kubelets.REFERENCE}$", max_length=255)]


class PoolNodesPart(Part):
    """Which nodes are in the pool: those that have all of this."""

    control_plane: StrictBool = Field(
        default=False, alias="controlPlane", description="It has control nodes, and not workers."
    )
    match_labels: dict[syntax.AnyLabelKey, syntax.LabelValue] = Field(
        default_factory=dict, alias="matchLabels", description="Labels that its nodes have; at most 20."
    )


class PoolKubeletPart(Part):
    """What the kubelets of the pool have."""

    configuration: dict[str, Any] = Field(
        default_factory=dict,
        description="Fields of the KubeletConfiguration, merged into autarky's own key by key; at most 200. Not "
        "`authentication`, `cgroupDriver` and the like, without which a node would be none of this cluster.",
    )

    @model_validator(mode="after")
    def _judge(self) -> Self:
        raise_all(rules.judge_pool_kubelet(self), self)
        return self


class PoolPart(Part):
    """Nodes whose kubelets change together."""

    name: syntax.Name = Field(
        description="A DNS label. `workers` and `control-nodes` are for all nodes that no other pool has."
    )
    nodes: PoolNodesPart = Field(
        default_factory=PoolNodesPart, description="Which nodes are in it; a node is in the first pool that it fits."
    )
    order: Annotated[StrictInt, Field(ge=0, le=kubelets.MOST_ORDER)] | None = Field(
        default=None,
        description="Pools of a lower order go first, of the same order side by side; 0 to 1000. Default: 1, of "
        "control nodes 2.",
    )
    at_once: StrictInt = Field(
        default=1,
        alias="atOnce",
        ge=1,
        le=kubelets.MOST_AT_ONCE,
        description="Nodes of the pool that change at a time; of control nodes it is always one in the cluster.",
    )
    drain: kubelets.DrainName = Field(
        default="Minor", description="When a node is drained before: `Minor` is where its kubelet gets another minor."
    )
    drain_seconds: StrictInt = Field(
        default=kubelets.DRAIN_SECONDS,
        alias="drainSeconds",
        ge=1,
        le=kubelets.MOST_DRAIN_SECONDS,
        description="A node that is not drained by then is refused, and takes pods again.",
    )
    version: syntax.KubernetesVersion | None = Field(
        default=None, description="Of its kubelets, such as v1.36.4. Default: that of the control plane."
    )
    runtime: ImageReference | None = Field(
        default=None, description="The image with the containerd and runc of its nodes. Default: `kubelets.runtime`."
    )
    kubelet: PoolKubeletPart = Field(default_factory=PoolKubeletPart, description="What the kubelets of the pool have.")

    @model_validator(mode="after")
    def _judge(self) -> Self:
        raise_all(rules.judge_pool(self), self)
        return self

    def as_in_api(self) -> dict[str, Any]:
        """As an item of `spec.pools`, with its defaults: an edit of each can be seen there."""
        labels, settings = self.nodes.match_labels, self.kubelet.configuration
        control = self.nodes.control_plane
        nodes = ({"controlPlane": True} if control else {}) | ({"matchLabels": dict(labels)} if labels else {})
        return {
            "name": self.name,
            **({"nodes": nodes} if nodes else {}),
            "order": self.order if self.order is not None else 2 if control else 1,
            "atOnce": self.at_once,
            "drain": self.drain,
            "drainSeconds": self.drain_seconds,
            **({} if self.version is None else {"version": str(Version.parse(self.version))}),
            **({} if self.runtime is None else {"runtime": self.runtime}),
            **({"kubelet": {"configuration": dict(settings)}} if settings else {}),
        }


class KubeletsPart(Part):
    """How kubelets change."""

    follow: StrictBool = Field(
        default=True,
        description="Whether they get the control plane's version, up after it and down before it. Else they stay as "
        "they are, but for the version of a pool.",
    )
    runtime: ImageReference | None = Field(
        default=None,
        description="The image with containerd and runc, which each node has to have: `autarky payload push VERSION "
        "--container-runtime`. Default: those of each node stay.",
    )


def judge_all(pools: list[PoolPart]) -> list[PoolPart]:
    raise_all(rules.judge_pools(pools), pools)
    return pools
