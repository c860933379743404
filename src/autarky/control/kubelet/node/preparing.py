"""What is staged for an order: which programs come out of which image, and which stay as they are."""

from __future__ import annotations

from autarky.control.kubelet.decide.observed import OnDisk
from autarky.control.kubelet.decide.order import Order
from autarky.control.kubelet.manifests import files, generation
from autarky.control.kubelet.manifests.generation import Base
from autarky.control.kubelet.node.on_disk import KubeletFiles
from autarky.control.kubelet.node.staging import KUBELET, Source, Staging, Wanted
from autarky.errors import UserError


def wanted(order: Order, base: Base, disk: OnDisk, kubelets: KubeletFiles, staging: Staging) -> Wanted:
    """UserError where it cannot be made of what is there."""
    target = order.target
    try:
        settings = generation.made(base, target)
    except ValueError as error:
        raise UserError(str(error), fix="correct the arguments of kubelets in the ControlPlane") from error
    programs = {KUBELET: Source(order.request.image, files.IMAGE_PATH)}
    kept = list(files.RUNTIME)
    if disk.version == target.version and kubelets.has_in_use(disk.current, [KUBELET]):  # its settings alone change
        programs, kept = {}, [KUBELET, *kept]
    if target.runtime and target.runtime != disk.runtime:
        directory = files.IMAGE_PATH.rpartition("/")[0]
        programs |= {name: Source(target.runtime, f"{directory}/{name}") for name in files.RUNTIME}
        kept = [name for name in kept if name not in files.RUNTIME]
    found = staging.in_use(kept)
    if lost := [name for name in kept if name not in found]:
        raise UserError(f"the {', '.join(lost)} of this node is not in its store", fix="run `autarky up`")
    return Wanted(str(target.version), programs, found, settings)
