"""`autarky up`: from machines to a self-hosted cluster; run again on a healthy one, it changes nothing."""

from __future__ import annotations

from autarky.engine.phase import Phase
from autarky.phases.agents import ApplyAgents, StartAgents
from autarky.phases.check_file import CheckFile, CheckFileAgain
from autarky.phases.context import Context
from autarky.phases.etcd_change import ChangeEtcd
from autarky.phases.etcd_template import AwaitEtcd
from autarky.phases.external_etcd import CheckExternalEtcd, PrepareExternalEtcd
from autarky.phases.finish import AwaitWorkloads, WriteKubeconfig
from autarky.phases.hosts import CheckHosts, CreateHosts
from autarky.phases.images import BringImages
from autarky.phases.inventory import PruneObjects, RecordApplied
from autarky.phases.join import JoinNodes, StartJoining
from autarky.phases.kubelets import ChangeKubelets
from autarky.phases.objects import ApplyObjects
from autarky.phases.other_etcd import BringEtcd
from autarky.phases.own_add_ons import ApplyAddOns
from autarky.phases.ownership import FollowControlPlane
from autarky.phases.pivot import Pivot
from autarky.phases.prepare import PrepareHosts
from autarky.phases.promote import MakeControlNodes
from autarky.phases.replaced import ForgetReplaced
from autarky.phases.retire import RetireHosted
from autarky.phases.start import StartControlPlane
from autarky.phases.supply import GetFollowed, GetPayload, IssueCertificates
from autarky.phases.upgrade import UpgradeControlPlane

PHASES: tuple[Phase[Context], ...] = (
    CheckFile(),
    GetPayload(),
    CreateHosts(),
    CheckHosts(),
    UpgradeControlPlane(),
    GetFollowed(),
    IssueCertificates(),
    WriteKubeconfig(),
    ForgetReplaced(),
    PrepareExternalEtcd(),
    PrepareHosts(),
    CheckExternalEtcd(),
    ChangeEtcd(),
    StartControlPlane(),
    CheckFileAgain(),
    FollowControlPlane(),
    BringImages(),
    BringEtcd(),
    StartJoining(),
    RecordApplied(),
    ApplyObjects(),
    JoinNodes(),
    StartAgents(),
    Pivot(),
    ApplyAgents(),
    RetireHosted(),
    MakeControlNodes(),
    AwaitEtcd(),
    ChangeKubelets(),
    AwaitWorkloads(),
    ApplyAddOns(),
    PruneObjects(),
)
