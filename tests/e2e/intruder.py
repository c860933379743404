"""Somebody who is root on a worker: what lies there, what each credential of it may do, and what came of it.

Everything is tried for real, from the worker, through its own load balancer. What must be refused is told by its
status; what a node may write of itself is looked at by what follows from it.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness import TestCluster

FACT = "node-restriction.kubernetes.io/autarky-control-plane"
WISH = "node-role.kubernetes.io/control-plane"
PUBLIC_IP = "flannel.alpha.coreos.com/public-ip"
TUNNEL = "flannel.alpha.coreos.com/backend-data"
CREATED, REFUSED, UNKNOWN = 201, 403, 401
"""Whom the API server knows it refuses by 403; all that it does not know gets 401, whatever it asks for."""
LEAVES = "/var/lib/autarky/leaves"
CONTROL_KEYS = (
    *(f"/etc/kubernetes/pki/{name}" for name in ("ca.key", "front-proxy-ca.key", "sa.key", "etcd/ca.key")),
    *(f"/etc/kubernetes/pki/etcd/{name}" for name in ("server.key", "peer.key")),
    *(f"{LEAVES}/kube-apiserver/{name}.key" for name in ("apiserver", "kubelet-client")),
    *(f"{LEAVES}/kube-apiserver/{name}.key" for name in ("front-proxy-client", "etcd-client")),
    *(f"{LEAVES}/{name}/client.key" for name in ("kube-controller-manager", "kube-scheduler")),
    "/var/lib/autarky/nllb/etcd-client.pem",
)
"""What a control node has, each of them."""
SEARCHED = "/etc /root /home /opt /usr/local /var/lib/autarky /var/lib/kubelet /var/lib/cni /var/lib/etcd /run /tmp"
"""Where somebody who looks for credentials looks on the disk of a node."""
PASSING: Mapping[str, Mapping[str, str]] = {
    "an API server": {"k8s-app": "kube-apiserver", "autarky.dev/slot": "hosted"},
    "a scheduler": {"k8s-app": "kube-scheduler", "tier": "control-plane", "autarky.dev/slot": "hosted"},
    "the operator": {"k8s-app": "autarky-operator", "tier": "control-plane"},
    "cluster DNS": {"k8s-app": "kube-dns"},
    "the guard of the quorum": {"k8s-app": "etcd-quorum-guard"},
}
"""What a mirror pod would pass for by these labels, so that a disruption budget or a Service selects it."""
_MARK = "== "
_UID = "@uid-of-its-node@"
"""In the body of an attempt: what is put there when it is tried."""
_DEEP, _LEVELS = "@fields of fields@", 1500
"""In the body of an attempt: JSON of so many levels, which is put there as text. Python allows 1000 calls."""
_NESTED = '{"f:a":' * _LEVELS + "{}" + "}" * _LEVELS
_TOLERATIONS, _LONG = 130_000, "/run/intruder/tolerations"
"""Of a pod that is nearly as long as etcd takes one, and the file that has them."""
_TELLTALE = "PRIVATE KEY|client-key-data|eyJhbGciOi"
"""What every credential that the API takes has in it: a key, or a token."""


@dataclass(frozen=True)
class Credential:
    """curl: the arguments that make curl use it."""

    name: str
    curl: str


@dataclass(frozen=True)
class Attempt:
    name: str
    method: str
    path: str
    body: Mapping[str, Any] | None = None
    headers: Sequence[str] = ()


@dataclass(frozen=True)
class Answer:
    status: int
    said: str


def _taken_out(path: str, name: str) -> list[str]:
    """Commands that take certificate and key out of a kubeconfig."""
    return [
        f"grep -o 'client-{what}-data[\": ]*[A-Za-z0-9+/=]*' {path} | sed 's/.*[\": ]//' | base64 -d"
        f" > /run/intruder/{name}.{what}"
        for what in ("certificate", "key")
    ]


@dataclass
class Worker:
    """The worker, and whoever has got root there."""

    cluster: TestCluster
    name: str
    credentials: list[Credential] = field(default_factory=list)

    def collect(self) -> list[str]:
        """Find every credential; the files that have one in them."""
        grep = f"grep -rIlE --exclude-dir=containerd --exclude-dir=intruder '{_TELLTALE}' {SEARCHED} 2>/dev/null"
        found = sorted(self.cluster.shell(self.name, f"{grep} || true").split())
        self.credentials = [self.take(path) for path in found]
        return found

    def take(self, path: str) -> Credential:
        if path.endswith("/token"):
            account = self.cluster.shell(self.name, f"cut -d. -f2 {path} | tr _- /+ | base64 -d 2>/dev/null || true")
            named = re.search(r'"serviceaccount":\{"name":"([^"]+)"', account)
            return Credential(named[1] if named else path, f'-H "Authorization: Bearer $(cat {path})"')
        name = path.rpartition("/")[2]
        if name.endswith(".conf"):
            self.cluster.shell(self.name, "; ".join(["mkdir -p /run/intruder", *_taken_out(path, name)]))
            return Credential(name, f"--cert /run/intruder/{name}.certificate --key /run/intruder/{name}.key")
        return Credential(name, f"--cert {path} --key {path}")

    def credential(self, name: str) -> Credential:
        return next(one for one in self.credentials if one.name.startswith(name))

    def tries(self, credential: Credential, attempts: Sequence[Attempt]) -> dict[str, Answer]:
        """All of them, one after another on one connection; attempt → what the API answered."""
        calls, uid = [], self.cluster.kubectl("get", "node", self.name, "-o", "jsonpath={.metadata.uid}")
        for number, one in enumerate(attempts):
            kind = "application/merge-patch+json" if one.method == "PATCH" else "application/json"
            words = ["-sS", "-m", "20", "--cacert", "/etc/kubernetes/pki/ca.crt", "-X", one.method]
            for header in (f"Content-Type: {kind}", *one.headers):
                words += ["-H", header]
            if one.body is not None:
                words += ["-d", json.dumps(one.body).replace(_UID, uid).replace(f'"{_DEEP}"', _NESTED)]
            words += ["-w", f"\n{_MARK}{number} %{{http_code}}\n", f"https://127.0.0.1:6443{one.path}"]
            calls.append(f"{credential.curl} {shlex.join(words)}")
        said = self.cluster.shell(self.name, f"curl {' --next '.join(calls)} 2>&1 || true")
        answers, lines = {}, list[str]()
        for line in said.splitlines():
            if not line.startswith(_MARK):
                lines.append(line)
                continue
            which, status = line.removeprefix(_MARK).split()
            answers[attempts[int(which)].name] = Answer(int(status), "\n".join(lines)[-1500:])
            lines.clear()
        assert answers.keys() == {one.name for one in attempts}, said
        return answers

    def floods(self, credential: Credential, number: int) -> list[str]:
        """Mirror pods, each about as long as etcd takes one; their names."""
        uid = self.cluster.kubectl("get", "node", self.name, "-o", "jsonpath={.metadata.uid}")
        pod = _mirror("@name@", self.name)
        pod["spec"]["tolerations"] = "@many@"
        before, between, after = re.split('@name@|"@many@"', json.dumps(pod).replace(_UID, uid))
        tolerations = f"""$(printf '{{"key":"a"}},%.0s' $(seq {_TOLERATIONS - 1}))"""
        self.cluster.shell(self.name, f"""mkdir -p /run/intruder; echo "[{tolerations}"'{{"key":"a"}}]' >{_LONG}""")
        url = "https://127.0.0.1:6443/api/v1/namespaces/kube-system/pods"
        send = f"{credential.curl} -sS -m 50 --cacert /etc/kubernetes/pki/ca.crt -H 'Content-Type: application/json'"
        names = [f"intruder-long-{count}" for count in range(number)]
        for name in names:
            body = (
                f"{{ printf %s {shlex.quote(before + name + between)}; cat {_LONG}; printf %s {shlex.quote(after)}; }}"
            )
            said = self.cluster.shell(
                self.name, f"{body} | curl {send} -d @- -o /dev/null -w '%{{http_code}}' {url} 2>&1 || true"
            )
            assert said == str(CREATED), (name, said)
        return names

    def is_known(self, credential: Credential) -> bool:
        """Whether the API server takes it for somebody: of one that it does not know all is refused anyway."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        who = Attempt("who", "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body)
        return self.tries(credential, [who])["who"].status == 201

    def keys_of_the_control_plane(self) -> set[str]:
        """Every key in its directories, whatever it is called, and whatever else is in that of the leaves. (The
        kubelet's own is elsewhere.)"""
        found = f"-name '*.key' -o -name '*etcd-client*' -o -path '{LEAVES}*'"
        return set(self.cluster.shell(self.name, f"find /etc/kubernetes /var/lib/autarky /run/autarky {found}").split())


def what_runs(cluster: TestCluster, nodes: Sequence[str]) -> dict[str, list[str]]:
    """Every container of the system as node, pod and how often it has begun, and what CRI runs on the nodes."""
    pods = json.loads(cluster.kubectl("get", "pods", "-n", "kube-system", "-o", "json"))["items"]
    started = [
        f"{pod['spec']['nodeName']} {pod['metadata']['name']} {pod['metadata']['uid']} {one['name']}"
        f" {one['restartCount']} {one.get('containerID')}"
        for pod in pods
        for one in pod["status"].get("containerStatuses", [])
    ]
    running = {node: sorted(cluster.shell(node, _TASKS).split("\n")) for node in nodes}
    return {"started": sorted(started), **running}


_TASKS = "/var/lib/autarky/bin/ctr -n k8s.io tasks ls -q"


def told_as_it_runs(cluster: TestCluster, nodes: Sequence[str]) -> bool:
    """The API has every static pod as it is in its file, and shows every container of these nodes. A kubelet is seconds
    behind a file that was put there a moment ago: what is recorded before that seems to have changed later."""
    pods = json.loads(cluster.kubectl("get", "pods", "-A", "-o", "json"))["items"]
    return all(_told_as_it_runs(cluster, node, pods) for node in nodes)


def _told_as_it_runs(cluster: TestCluster, node: str, pods: Sequence[Mapping[str, Any]]) -> bool:
    own = [pod for pod in pods if pod["spec"].get("nodeName") == node]
    mirrors = {(pod["metadata"].get("annotations") or {}).get("kubernetes.io/config.hash") for pod in own}
    told = {
        one.get("containerID", "").removeprefix("containerd://")
        for pod in own
        for one in pod["status"].get("containerStatuses", [])
    }
    files = json.loads(f"[{cluster.shell(node, _STATIC_PODS).rstrip().removesuffix(',')}]")
    runs = set(cluster.shell(node, _TASKS).split())
    sandboxes = len(own)
    in_files = {pod["metadata"]["uid"] for pod in files}
    return in_files == mirrors - {None} and told <= runs and len(runs) == len(told) + sandboxes


_STATIC_PODS = "for file in /etc/kubernetes/manifests/*.json; do cat $file; echo ,; done"


def on_node(node: str, what: str, metadata: Mapping[str, Any]) -> list[Attempt]:
    """The same change by way of the Node and of its status."""
    body = {"metadata": metadata}
    return [
        Attempt(f"{what} of {node}", "PATCH", f"/api/v1/nodes/{node}", body),
        Attempt(f"{what} of {node} by its status", "PATCH", f"/api/v1/nodes/{node}/status", body),
    ]


def orders(node: str) -> list[Attempt]:
    """What only administrators and the operator may write on any Node."""
    changes: dict[str, Mapping[str, Any]] = {
        "the fact": {"labels": {FACT: ""}},
        "the wish": {"labels": {WISH: ""}},
        "a role": {"labels": {"node-role.kubernetes.io/intruder": ""}},
        "a restriction": {"labels": {"node-restriction.kubernetes.io/intruder": ""}},
        "the word leave": {"annotations": {"autarky.dev/control-node": "leave"}},
        "an order": {"annotations": {"autarky.dev/intruder": "x"}},
        "an overwrite": {"annotations": {"flannel.alpha.coreos.com/public-ip-overwrite": "10.0.0.9"}},
        "a public address to keep": {"annotations": {"flannel.alpha.coreos.com/node-public-ip": "10.0.0.9"}},
        "a finalizer": {"finalizers": ["example.org/intruder"]},
        "an owner": {
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Namespace", "name": "gone", "uid": "5b2f1c0e-0000-4000-8000-000000000000"}
            ]
        },
    }
    return [one for what, metadata in changes.items() for one in on_node(node, what, metadata)]


def nested_without_end(node: Mapping[str, Any]) -> Attempt:
    """The whole Node, as if it had been written by one more manager. Whoever lists Nodes reads of which fields."""
    meta = {key: value for key, value in node["metadata"].items() if key != "resourceVersion"}
    entry = {
        "manager": "intruder",
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:annotations": _DEEP}},
    }
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {**meta, "managedFields": [*meta["managedFields"], entry]},
        "spec": node["spec"],
    }
    return Attempt("fields of fields", "PUT", f"/api/v1/nodes/{meta['name']}", body)


def foreign(node: str) -> list[Attempt]:
    """What nobody but that node, or those who look after it, may write or do."""
    ready = {"conditions": [{"type": "Ready", "status": "False", "reason": "Intruder", "message": "x"}]}
    addresses = {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}
    return [
        *on_node(node, "withdrawn", {"annotations": {"autarky.dev/withdrawn": "intruder"}}),
        *on_node(node, "ready", {"annotations": {"autarky.dev/control-node": "ready-intruder"}}),
        *on_node(node, "its slots", {"annotations": {"autarky.dev/slots": "intruder"}}),
        *on_node(node, "a label", {"labels": {"example.org/intruder": ""}}),
        *on_node(node, "the public address", {"annotations": {"flannel.alpha.coreos.com/public-ip": "10.0.0.9"}}),
        Attempt(f"readiness of {node}", "PATCH", f"/api/v1/nodes/{node}/status", {"status": ready}),
        Attempt(f"addresses of {node}", "PATCH", f"/api/v1/nodes/{node}/status", {"status": addresses}),
        Attempt(f"a taint of {node}", "PATCH", f"/api/v1/nodes/{node}", {"spec": {"taints": []}}),
        Attempt(f"the end of {node}", "DELETE", f"/api/v1/nodes/{node}"),
        Attempt(f"proxy to {node}", "GET", f"/api/v1/nodes/{node}/proxy/pods"),
        Attempt(f"lease of {node}", "DELETE", f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}"),
    ]


def everything_else(names: Mapping[str, str], worker: str, bootstrap_data: Mapping[str, str]) -> list[Attempt]:
    """`names`: of live objects: "secrets" (separated by spaces), "api-server" (a pod of it on another node)."""
    system = "/api/v1/namespaces/kube-system"
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    ours = "/apis/autarky.dev/v1alpha1"
    admission = "/apis/admissionregistration.k8s.io/v1"
    discovery = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}
    member = {
        "apiVersion": "autarky.dev/v1alpha1",
        "kind": "EtcdMember",
        "metadata": {"name": worker},
        "spec": {"nodeName": worker, "address": "10.0.0.9"},
    }
    return [
        Attempt("all Secrets", "GET", "/api/v1/secrets"),
        Attempt("Secrets of the system", "GET", f"{system}/secrets"),
        *(Attempt(f"Secret {name}", "GET", f"{system}/secrets/{name}") for name in names["secrets"].split()),
        Attempt(
            "a join token",
            "POST",
            f"{system}/secrets",
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "bootstrap-token-abcdef", "annotations": {"autarky.dev/node": "n1"}},
                "type": "bootstrap.kubernetes.io/token",
                "stringData": dict(bootstrap_data),
            },
        ),
        Attempt("the inventory", "PATCH", f"{system}/configmaps/autarky-join-inventory", {"data": {"evil": "{}"}}),
        Attempt("no inventory", "DELETE", f"{system}/configmaps/autarky-join-inventory"),
        Attempt("the record of control nodes", "PATCH", f"{system}/configmaps/autarky-control-nodes", {"data": {}}),
        Attempt("where the API is", "PATCH", f"{discovery}/kubernetes", {"endpoints": []}),
        Attempt("no API", "DELETE", f"{discovery}/kubernetes"),
        Attempt("another slice", "POST", discovery, _slice()),
        Attempt("a member of etcd", "POST", f"{ours}/etcdmembers", member),
        Attempt("a member that goes", "PATCH", f"{ours}/etcdmembers/n1", {"spec": {"state": "Removed"}}),
        Attempt("how a member is", "PATCH", f"{ours}/etcdmembers/n1/status", {"status": {"phase": "Removed"}}),
        Attempt("the control plane", "PATCH", f"{ours}/controlplanes/cluster", {"spec": {"selfHosted": "4"}}),
        Attempt("how it is", "PATCH", f"{ours}/controlplanes/cluster/status", {"status": {}}),
        *(
            Attempt(f"who leads {name}", "PATCH", f"{leases}/{name}", {"spec": {"holderIdentity": worker}})
            for name in ("kube-controller-manager", "kube-scheduler", "autarky-operator")
        ),
        Attempt(
            "all rights",
            "POST",
            f"{rbac}/clusterrolebindings",
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "intruder"},
                "roleRef": role,
                "subjects": [subject],
            },
        ),
        Attempt("more rights", "PATCH", f"{rbac}/clusterroles/autarky:flannel", {"rules": []}),
        *(
            Attempt(f"no policy {name}", "DELETE", f"{admission}/validatingadmissionpolicies/{name}")
            for name in names["policies"].split()
        ),
        Attempt(
            "a token of the operator", "POST", f"{system}/serviceaccounts/autarky-operator/token", _token_request()
        ),
        Attempt("into an API server", "GET", f"{system}/pods/{names['api-server']}/exec?command=id&stdout=true"),
        Attempt("the end of an API server", "DELETE", f"{system}/pods/{names['api-server']}"),
        *on_node(worker, "more than is looked through", {"annotations": {str(number): "" for number in range(1001)}}),
        Attempt("a pod", "POST", f"{system}/pods", _pod("intruder", worker)),
        Attempt("a mirror pod elsewhere", "POST", f"{system}/pods", _mirror("intruder-n1", "n1")),
        Attempt("a mirror pod with a Secret", "POST", f"{system}/pods", _mirror("intruder-s", worker, secret=True)),
        Attempt(
            "a mirror pod that keeps others away", "POST", f"{system}/pods", _mirror("intruder-a", worker, alone=True)
        ),
        *(
            Attempt(
                f"a mirror pod that passes for {what}",
                "POST",
                f"{system}/pods",
                _mirror(f"intruder-{number}", worker, labels=labels),
            )
            for number, (what, labels) in enumerate(PASSING.items())
        ),
        Attempt("another template", "PATCH", "/apis/apps/v1/namespaces/kube-system/daemonsets/kube-apiserver", {}),
        Attempt("another user", "GET", f"{system}/secrets", headers=("Impersonate-User: kubernetes-admin",)),
        Attempt(
            "another group",
            "GET",
            f"{system}/secrets",
            headers=("Impersonate-User: x", "Impersonate-Group: system:masters"),
        ),
    ]


def _slice() -> Mapping[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "intruder", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.9"]}],
        "ports": [{"name": "https", "port": 6443}],
    }


def _token_request() -> Mapping[str, Any]:
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}


def _pod(name: str, node: str) -> dict[str, Any]:
    container = {"name": "x", "image": "registry.k8s.io/pause:3.10", "imagePullPolicy": "Never"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"k8s-app": "kube-apiserver", "autarky.dev/slot": "hosted"}},
        "spec": {"nodeName": node, "containers": [container]},
    }


def _mirror(
    name: str, node: str, *, labels: Mapping[str, str] | None = None, secret: bool = False, alone: bool = False
) -> dict[str, Any]:
    """As a kubelet makes it: nothing is wrong with it but what is said here."""
    pod = _pod(name, node)
    pod["metadata"]["labels"] = labels or {}
    pod["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x", "kubernetes.io/config.source": "file"}
    pod["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Node", "name": node, "uid": _UID, "controller": True}
    ]
    if secret:
        pod["spec"]["volumes"] = [{"name": "s", "secret": {"secretName": "x"}}]
    if alone:
        term = {"labelSelector": {}, "topologyKey": "kubernetes.io/os"}
        pod["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return pod


def plain_mirror(worker: str) -> Attempt:
    """As it makes one for a static pod of its own, so let through: the refused ones differ only in what they say."""
    return Attempt(
        "a plain mirror pod", "POST", "/api/v1/namespaces/kube-system/pods", _mirror("intruder-plain", worker)
    )


def static_pod() -> dict[str, Any]:
    """It says of itself that it is an API server; what says that it is a hosted one has no mirror pod."""
    pod = _pod("intruder", "")
    del pod["spec"]["nodeName"]
    labels = {"k8s-app": "kube-apiserver"}
    return {**pod, "metadata": {**pod["metadata"], "namespace": "kube-system", "labels": labels}}


def ask_in_its_own_name(worker: Worker, credential: Credential, name: str) -> Answer:
    """For what a kubelet comes back with when its certificate has expired."""
    subject = f"/O=system:nodes/CN=system:node:{worker.name}"
    body = _request(
        name, _signing_request(worker, subject), "kubernetes.io/kube-apiserver-client-kubelet", "client auth"
    )
    return worker.tries(credential, [Attempt(name, "POST", _CSRS, body)])[name]


def _signing_request(worker: Worker, subject: str) -> str:
    return worker.cluster.shell(
        worker.name,
        "openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout /dev/null"
        f" -subj '{subject}' 2>/dev/null | base64 -w0",
    ).strip()


def _with_two_readings(worker: Worker, name: str) -> Attempt:
    """One that a careless judge reads in the worker's own name, and who signs it in the neighbour's: Go passes over a
    block that does not begin a line."""
    own, foreign = (
        base64.b64decode(_signing_request(worker, f"/O=system:nodes/CN=system:node:{node}"))
        for node in (worker.name, "n1")
    )
    made = base64.b64encode(b"x" + own + foreign).decode()
    return Attempt(
        name, "POST", _CSRS, _request(name, made, "kubernetes.io/kube-apiserver-client-kubelet", "client auth")
    )


def _request(name: str, made: str, signer: str, usage: str) -> dict[str, Any]:
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {"request": made, "signerName": signer, "usages": ["digital signature", usage]},
    }


_CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
_REQUESTS = (
    ("kubernetes.io/kube-apiserver-client-kubelet", "/O=system:nodes/CN=system:node:n1", "client auth"),
    ("kubernetes.io/kube-apiserver-client-kubelet", "/O=system:masters/CN=intruder", "client auth"),
    ("kubernetes.io/kubelet-serving", "/O=system:nodes/CN=system:node:n1", "server auth"),
    ("kubernetes.io/kube-apiserver-client", "/O=system:masters/CN=intruder", "client auth"),
    ("kubernetes.io/kube-apiserver-client", "/CN=system:kube-controller-manager", "client auth"),
)


def ask_for_certificates(worker: Worker, credential: Credential) -> list[str]:
    """Ask for what is somebody else's; the names of the requests that the API took."""
    attempts = []
    for number, (signer, subject, usage) in enumerate(_REQUESTS):
        name = f"intruder-{number}"
        body = _request(name, _signing_request(worker, subject), signer, usage)
        attempts.append(Attempt(name, "POST", _CSRS, body))
    attempts.append(_with_two_readings(worker, "intruder-two"))
    answers = worker.tries(credential, attempts)
    approve = {"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "x", "message": "x"}]}}
    own = [Attempt(kind, "PATCH", f"{_CSRS}/intruder-0/{kind}", approve) for kind in ("approval", "status")]
    assert {one.status for one in worker.tries(credential, own).values()} == {REFUSED}
    taken = [name for name, answer in answers.items() if answer.status == 201]
    assert all(answer.status in (201, REFUSED) for answer in answers.values()), answers
    assert taken, f"{credential.name} may ask for nothing: {answers}"
    return taken


def are_judged(cluster: TestCluster, names: list[str]) -> bool:
    """Those of kubelets that the API took: of one node in another's name it takes none. Those of other signers nobody
    approves."""
    signers = {"kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"}
    ours = [csr for csr in requests_named(cluster, names) if csr["spec"]["signerName"] in signers]
    return all(csr["status"].get("conditions") for csr in ours)


def requests_named(cluster: TestCluster, names: list[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cluster.kubectl("get", "csr", "-o", "json"))["items"]
    return [csr for csr in found if csr["metadata"]["name"] in names]
