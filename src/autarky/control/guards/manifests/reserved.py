"""Reserved names in kube-system, of objects that autarky trusts: a ValidatingAdmissionPolicy (docs/security.md).

The operator restores workloads from what it has kept (`autarky-retired-…`, `autarky-last-good-…`) and trusts nodes by
its own records, agents create etcd's pod from a template, and hosted pods mount Secrets and ConfigMaps that are named
by their content; CoreDNS has its Corefile by a fixed name. RBAC cannot restrict `create` by name, and `protection`
guards only what has autarky's label. So whoever may create ConfigMaps in kube-system could create one under such a name
before we do.

The controller-manager's publisher writes into each namespace which CA pods trust. With another CA the operator and the
add-ons trust no API server; and if somebody also makes that ConfigMap immutable, the publisher cannot fix it.
Deletion is not checked: it only delays pods that start meanwhile, since the publisher creates the ConfigMap again.

Contract: exemptions come only by right: whoever may update the ControlPlane, and the operator; and the publisher, for
what it publishes. kube-system's other accounts are not exempt: a worker has the tokens of the pods that it runs.
Whoever may write there may write the same again: that is how everything stored is encrypted again.

Danger: it fails closed, and is evaluated for all ConfigMaps and Secrets there. Its conditions read the name, which
every object has by then, and whatever may be absent by optional selection.
"""

from __future__ import annotations

import re

from autarky.control.addons import ADD_ONS
from autarky.control.drift.decide.applied import EDITABLE
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.guards.manifests.policies import MAY, changes, policy
from autarky.model.components import API_SERVER, CONTROLLER_MANAGER, SCHEDULER
from autarky.render.values import SYSTEM, Object

NAME = "autarky-reserved-names"
_BY_CONTENT = (API_SERVER, CONTROLLER_MANAGER, SCHEDULER, *(one.component for one in ADD_ONS))
"""Whose Secrets and ConfigMaps are named by a hash (`values.immutable_secret`)."""
PUBLISHED = "kube-root-ca.crt"
PUBLISHER = f"system:serviceaccount:{SYSTEM}:root-ca-cert-publisher"
"""Who writes it, by Kubernetes' own role, before the policy exists and after."""
_BY_NAME = "|".join((etcd.TEMPLATE, *EDITABLE, PUBLISHED.replace(".", "[.]")))
PATTERN = f"^(autarky-.*|{_BY_NAME}|({'|'.join(_BY_CONTENT)})-[0-9a-f]{{10}})$"


def is_reserved(name: str) -> bool:
    """As the policy decides it."""
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
