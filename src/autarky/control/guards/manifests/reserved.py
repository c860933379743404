"""Names in kube-system of what autarky believes: a ValidatingAdmissionPolicy (docs/security.md).

The operator makes workloads again of what it has kept (`autarky-retired-…`, `autarky-last-good-…`) and trusts nodes by
what it has noted, agents make etcd's pod of a template, and hosted pods mount Secrets and ConfigMaps that are named by
their content. RBAC gives `create` for no names, and `protection` guards what bears autarky's label. So whoever may
create ConfigMaps in kube-system could put something there under such a name, before we do.

The controller-manager's publisher writes in each namespace which CA pods believe. With another CA operator, flannel and
cluster DNS trust no API server; and where somebody has made that immutable as well, the publisher cannot put it right.
Deleting it is not asked about: that only delays pods which begin meanwhile, since the publisher makes it anew.

Contract: nobody is exempt but by right: who may update the ControlPlane, and the operator; and the publisher, for what
it publishes. kube-system's other accounts are not: a worker holds the tokens of those whose pods it runs. Whoever may
write there may write the same again: that is how everything stored is encrypted anew.

Danger: it fails closed, and is asked of all ConfigMaps and Secrets there. Its conditions read the name, which every
object has by then, and what may be absent by optional selection.
"""

from __future__ import annotations

import re

from autarky.control.etcd.manifests import pods as etcd
from autarky.control.guards.manifests.policies import MAY, changes, policy
from autarky.model.components import API_SERVER, CONTROLLER_MANAGER, COREDNS, FLANNEL, KUBE_PROXY, SCHEDULER
from autarky.render.values import SYSTEM, Object

NAME = "autarky-reserved-names"
_BY_CONTENT = (API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KUBE_PROXY, FLANNEL, COREDNS)
"""Whose Secrets and ConfigMaps are named by a hash (`values.immutable_secret`)."""
PUBLISHED = "kube-root-ca.crt"
PUBLISHER = f"system:serviceaccount:{SYSTEM}:root-ca-cert-publisher"
"""Who writes it, by Kubernetes' own role; before there is a policy, and after."""
PATTERN = f"^(autarky-.*|{etcd.TEMPLATE}|{PUBLISHED.replace('.', '[.]')}|({'|'.join(_BY_CONTENT)})-[0-9a-f]{{10}})$"


def is_reserved(name: str) -> bool:
    """As the policy has it."""
    return re.match(PATTERN, name) is not None


def objects() -> list[Object]:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["configmaps", "secrets"],
    }
    message = (
        "objects of this name are the control plane's: only who may update the ControlPlane may write them (autarky's"
        f" docs/security.md, policy {NAME})"
    )
    published = (
        f"(request.resource.resource == 'configmaps' && object.metadata.name == '{PUBLISHED}' &&"
        f" request.userInfo.username == '{PUBLISHER}')"
    )
    conditions = {
        "of-a-reserved-name": f"object.metadata.name.matches('{PATTERN}')",
        "changes-it": changes("data", "binaryData", "type", "immutable"),
    }
    return policy(
        NAME,
        [rule],
        conditions=conditions,
        validations=[(f"{published} || {MAY}", message)],
        namespace=SYSTEM,
    )
