"""A new etcd of one member on a kubeadm control node, by hand: what etcd's page on disaster recovery says, and that of
Kubernetes on etcd (API servers are stopped before), as somebody types it who has done it before, with no pause.

The API server's and etcd's manifests go out of the kubelet's sight, so that both end; the member's database is restored
as that of a single member, with later revisions (which etcd's page asks of clusters with watches, as Kubernetes has
them); the former data is moved aside, and the manifests go back. The database is that of the data directory: without a
quorum `etcdctl snapshot save` may not answer.
"""

from __future__ import annotations

from autarky import places
from autarky.ports import Host

SECONDS = 180
# Arguments: the node's name and address.
SCRIPT = f"""
set -eu
manifests=/etc/kubernetes/manifests aside=/root/aside data=/var/lib/etcd
mkdir -p $aside
mv $manifests/kube-apiserver.yaml $manifests/etcd.yaml $aside/
while pgrep -x 'etcd|kube-apiserver' >/dev/null; do sleep 0.2; done
{places.BIN}/etcdutl snapshot restore $data/member/snap/db --skip-hash-check --data-dir $data/new \
  --name "$1" --initial-cluster "$1=https://$2:2380" --initial-advertise-peer-urls "https://$2:2380" \
  --bump-revision 1000000000 --mark-compacted
mv $data/member $data/former
mv $data/new/member $data/member
mv $aside/etcd.yaml $aside/kube-apiserver.yaml $manifests/
"""


async def recover_by_hand(host: Host, name: str, address: str) -> None:
    """Of that control node, which is the only one left. CommandFailed where a command fails."""
    await host.run(["sh", "-c", SCRIPT, "sh", name, address], timeout=SECONDS)
