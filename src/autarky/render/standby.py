"""The standby: revisions of static pods kept complete on a control node's disk, and the script that
activates them.

On the host:

    /var/lib/autarky/standby/COMPONENT/REVISION/pod.json     with placeholders for name and uid
    /var/lib/autarky/standby/COMPONENT/REVISION/files/…      what Secrets and ConfigMaps hold, root only
    /var/lib/autarky/standby/COMPONENT/current               → REVISION, switched in one rename
    /var/lib/autarky/standby/COMPONENT/previous              → the REVISION that was current before it
    /etc/kubernetes/manifests/standby-COMPONENT-ACTIVATION.json   while it is active

A revision is named by its content and never changed; it counts only once `current` points to it, which
happens after everything in it was synced: complete or absent. A file that is not whole all the same (empty or
torn, by a hand or a damaged disk) counts as absent: then `previous` is activated. The script needs no API, no
container and nothing but a POSIX shell with coreutils (and bash to try a port), and may fail without harm: the
kubelet's unit runs it, before the kubelet for the API server. The rest can do nothing without an API, and when there
is one the kubelet starts the hosted ones: their standbys come only where those have had their time and do not answer.
What starts at the same time only makes each other late. For the same reason it looks once a second and no more: each
look starts a process.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from autarky import places
from autarky.errors import Unreachable
from autarky.model import ports
from autarky.model.files import File
from autarky.render import api_server, controllers, etcd, pods
from autarky.render.values import Inputs, Object, content_hash, pretty_json

SCRIPT_PATH = f"{places.BIN}/standby"
BOOT_FILE = f"{places.RUN}/boot"
"""Boot id and start of this boot (seconds since the epoch, before any control plane process), on a tmpfs. The time is
for people: clocks are set."""
HOSTED_PORTS = {
    api_server.COMPONENT: ports.API_HOSTED,
    controllers.CONTROLLER_MANAGER: ports.CONTROLLER_MANAGER_HOSTED,
    controllers.SCHEDULER: ports.SCHEDULER_HOSTED,
}
STANDBY_PORTS = {
    api_server.COMPONENT: ports.API_STANDBY,
    controllers.CONTROLLER_MANAGER: ports.CONTROLLER_MANAGER_STANDBY,
    controllers.SCHEDULER: ports.SCHEDULER_STANDBY,
}
COMPONENTS = tuple(HOSTED_PORTS)
REST_SECONDS = 60
"""Hosted pods of level 3 answer 10 to 30 s after the kubelet has started, and the agent that reads a stale lease does
not wait for the script."""
LOCK_SECONDS = 20
"""For how long the script waits for its lock: each writer is done within a second, on a slow disk within some."""
NO_LOCK = 75
"""The script's exit status when it did nothing, since it did not get its lock (EX_TEMPFAIL: try again)."""
ACTIVATION_NAME = "[0-9a-f]" * 8
"""The pattern of what an activation is called: the beginning of its uid."""


@dataclass(frozen=True, slots=True)
class Revision:
    """One immutable revision of one component's standby."""

    component: str
    name: str
    files: tuple[File, ...]

    @property
    def directory(self) -> str:
        return f"{places.STANDBY}/{self.component}/{self.name}"


def revision(inputs: Inputs, component: str) -> Revision:
    """The standby of a component as the cluster file wants it."""
    contents = _files(inputs, component)
    name = content_hash([_spec(inputs, component, "@DIRECTORY@"), contents])
    directory = f"{places.STANDBY}/{component}/{name}"
    pod = pods.standby_pod(component, name, _spec(inputs, component, f"{directory}/files"))
    files = [File(f"{directory}/files/{file}", text.encode(), 0o600) for file, text in contents.items()]
    return Revision(component, name, (*files, File(f"{directory}/pod.json", pretty_json(pod), 0o600)))


def _spec(inputs: Inputs, component: str, directory: str) -> Object:
    if component == api_server.COMPONENT:
        return api_server.standby_spec(inputs, directory)
    return controllers.standby_spec(inputs, component, directory)


def _files(inputs: Inputs, component: str) -> dict[str, str]:
    if component == api_server.COMPONENT:
        return api_server.standby_files(inputs)
    return controllers.standby_files(inputs, component)


def script() -> File:
    """The script. It asks the hosted slot's own port, never the shared one, which a neighbour may answer."""
    cases = "\n".join(f"\t{name}) echo {port} ;;" for name, port in HOSTED_PORTS.items())
    text = _SCRIPT.replace("@COMPONENTS@", " ".join(COMPONENTS)).replace("@PORTS@", cases)
    return File(SCRIPT_PATH, text.encode(), 0o755)


_SCRIPT = """\
#!/bin/sh
# Standby static pods of the control plane: put in place, taken away, listed. Written by autarky.
#   standby boot                 before the kubelet starts: activate the API server, unless it answers on its own port
#   standby boot-rest            the others that have a standby, unless the hosted ones answer within @REST_SECONDS@ s
#   standby switch COMPONENT REVISION   make a complete revision the current one
#   standby activate COMPONENT   a new activation of the current revision, unless one is in place
#                                (of the previous one when the current one is not whole)
#   standby renew COMPONENT      a new activation in place of those that are there, if any is
#   standby withdraw COMPONENT   remove the manifests of all its activations (the kubelet ends the pods)
#   standby restore-etcd         put etcd's former static pod back, where a change of it was cut and none is there
#   standby outdated             the components of which another revision is in place than the current one
#   standby list                 COMPONENT REVISION ACTIVATIONS, a line each
set -u
run=@RUN@
standby=@STANDBY@
manifests=@MANIFESTS@

hosted_port() {
\tcase "$1" in
@PORTS@
\tesac
}

answers() { bash -c "exec 3<>/dev/tcp/127.0.0.1/$1" 2>/dev/null; }

manifests_of() { ls "$manifests" 2>/dev/null | grep "^standby-$1-@ACTIVATION_NAME@\\.json$"; }

# Whether the file is a pod as autarky writes it, from its first line to its last.
whole() {
\t[ -f "$1" ] && [ "$(head -c 1 "$1" | tr -d '\\0')" = "{" ] && [ "$(tail -c 2 "$1" | tr -d '\\0')" = "}" ] &&
\t\tgrep -q '"kind": "Pod"' "$1"
}

active() { for file in $(manifests_of "$1"); do whole "$manifests/$file" && echo "$file"; done; }

# The pod of the current revision; of the one before it when the current one is not whole.
newest_whole() {
\tfor link in current previous; do
\t\tif whole "$standby/$1/$link/pod.json"; then echo "$standby/$1/$link/pod.json"; return 0; fi
\t\t[ ! -L "$standby/$1/$link" ] || echo "the $link revision of $1 is not whole" >&2
\tdone
\techo "no complete standby of $1" >&2
\treturn 1
}

# Whether what is in place is of the current revision. Where that is not whole, what is in place is as good as it gets.
up_to_date() {
\twhole "$standby/$1/current/pod.json" || return 0
\trevision=$(readlink "$standby/$1/current")
\tfor file in $(active "$1"); do
\t\tgrep -q '"@REVISION@": "'"$revision"'"' "$manifests/$file" || return 1
\tdone
}

# The API server's last activation may drain for a while on its port: the next one takes the spare port.
spare_port() {
\t[ "$1" = @API@ ] && answers @API_PORT@ || return 0
\techo 's/--secure-port=@API_PORT@/--secure-port=@SPARE@/; s/"port": @API_PORT@/"port": @SPARE@/'
}

activate() {
\t[ -z "$(active "$1")" ] || return 0
\tmkdir -p "$manifests" && withdraw "$1" # what is there is not whole
\tput_in_place "$1"
}

# What a kubelet rejected it never tries again. Nothing in place: it was withdrawn meanwhile, and stays so.
renew() {
\told=$(manifests_of "$1")
\t[ -n "$old" ] || return 0
\tput_in_place "$1" || return 1
\tfor file in $old; do rm -f "$manifests/$file"; done
\tsync "$manifests"
}

put_in_place() {
\tpod=$(newest_whole "$1") || return 1
\tuid=$(cat /proc/sys/kernel/random/uuid) || return 1
\tactivation=${uid%%-*}
\tmkdir -p "$manifests"
\trm -f "$manifests/.standby-$1-"* # of an activation that was killed
\ttemporary=$manifests/.standby-$1-$activation
\tmarks="s/@ACTIVATION_MARK@/$activation/g; s/@UID_MARK@/$uid/g"
\t( umask 077; sed "$marks; $(spare_port "$1")" "$pod" >"$temporary" ) || return 1
\tsync "$temporary" && mv "$temporary" "$manifests/standby-$1-$activation.json" && sync "$manifests"
}

# Not `ln -f`: where the link is there already it makes another under a name of its own, which a power cut would leave.
point() {
\trm -f "$standby/$1/.next" && ln -s "$3" "$standby/$1/.next" || return 1
\tmv -T "$standby/$1/.next" "$standby/$1/$2" && sync "$standby/$1"
}

switch() {
\twhole "$standby/$1/$2/pod.json" || { echo "no revision $2 of $1" >&2; return 1; }
\told=$(readlink "$standby/$1/current" 2>/dev/null) || old=$2
\t[ "$old" = "$2" ] || ! whole "$standby/$1/$old/pod.json" || point "$1" previous "$old" || return 1
\tpoint "$1" current "$2"
}

withdraw() {
\tfor file in $(manifests_of "$1"); do rm -f "$manifests/$file"; done
\tsync "$manifests"
}

outdated() { for component in @COMPONENTS@; do up_to_date "$component" || echo "$component"; done; }

list() {
\tfor component in @COMPONENTS@; do
\t\tcurrent=$(readlink "$standby/$component/current" 2>/dev/null) || current=-
\t\tprintf '%s %s' "$component" "$current"
\t\tfor file in $(active "$component"); do
\t\t\tfile=${file#standby-"$component"-}
\t\t\tprintf ' %s' "${file%.json}"
\t\tdone
\t\techo
\tdone
}

# One writer at a time: the node agent, up, and the kubelet's start may meet. Who may open the file may hold the lock,
# to read is enough: so nobody but root may.
lock() {
\t( umask 077; mkdir -p "$run" && chmod 700 "$run" && : >>"$run/standby.lock" && chmod 600 "$run/standby.lock" ) ||
\t\treturn 1
\texec 9>>"$run/standby.lock" && flock -w @LOCK_SECONDS@ 9
}

# What is done without the lock may undo what another does at the same time.
need_lock() {
\tlock || { echo "standby: nothing was done: $run/standby.lock is held or cannot be made" >&2; exit @NO_LOCK@; }
}

# Written before any control plane process of this boot runs: who held a lease in another boot is dead.
note_boot() {
\t[ ! -f "$run/boot" ] || return 0
\t( umask 077; mkdir -p "$run" ) && echo "$(cat /proc/sys/kernel/random/boot_id) $(date +%s.%N)" >"$run/.boot" &&
\t\tmv "$run/.boot" "$run/boot"
}

# `up` was cut off between taking one away and putting the other there. A member whose data has gone has left.
restore_etcd() {
	[ -d "@MEMBER@/wal" ] && whole "@FORMER@" || return 0
	[ -z "$(ls "$manifests" 2>/dev/null | grep '^etcd-')" ] || return 0
	name=$(grep -o '"name": "etcd-[0-9a-f]*"' "@FORMER@" | head -n 1 | cut -d '"' -f 4)
	[ -n "$name" ] || return 0
	( umask 077; cp "@FORMER@" "$manifests/.$name" ) && sync "$manifests/.$name" &&
		mv "$manifests/.$name" "$manifests/$name.json" && sync "$manifests"
}

boot() { note_boot; restore_etcd; activate_silent @API@; }

boot_rest() {
\twaiting=$(resting)
\tattempts=@REST_SECONDS@
\tuntil all_answer $waiting || [ "$attempts" -eq 0 ]; do sleep 1; attempts=$((attempts - 1)); done
\tneed_lock
\tfor component in $waiting; do activate_silent "$component"; done
}

# The components whose standby could be activated and is not: none on a worker, or where level 3 lives in that slot.
resting() {
\tfor component in @REST@; do
\t\t[ ! -L "$standby/$component/current" ] || [ -n "$(active "$component")" ] || echo "$component"
\tdone
}

all_answer() {
\tfor component in "$@"; do answers "$(hosted_port "$component")" || return 1; done
}

activate_silent() { answers "$(hosted_port "$1")" || activate "$1"; }

case "${1-}" in
list | outdated) "$1" ;;
boot) lock || echo "going on without the lock: the kubelet waits" >&2; boot ;;
boot-rest) boot_rest ;;
restore-etcd) need_lock; restore_etcd ;;
activate | renew | withdraw) need_lock; "$1" "$2" ;;
switch) need_lock; switch "$2" "$3" ;;
*) sed -n 's/^#   //p' "$0" >&2; exit 2 ;;
esac
"""
_SCRIPT = (
    _SCRIPT.replace("@STANDBY@", places.STANDBY)
    .replace("@RUN@", places.RUN)
    .replace("@MANIFESTS@", places.MANIFESTS)
    .replace("@MEMBER@", etcd.MEMBER_DIRECTORY)
    .replace("@FORMER@", places.ETCD_FORMER)
    .replace("@API@", api_server.COMPONENT)
    .replace("@REVISION@", pods.REVISION)
    .replace("@REST@", " ".join(name for name in COMPONENTS if name != api_server.COMPONENT))
    .replace("@REST_SECONDS@", str(REST_SECONDS))
    .replace("@LOCK_SECONDS@", str(LOCK_SECONDS))
    .replace("@NO_LOCK@", str(NO_LOCK))
    .replace("@API_PORT@", str(ports.API_STANDBY))
    .replace("@SPARE@", str(ports.API_STANDBY_SPARE))
    .replace("@ACTIVATION_NAME@", ACTIVATION_NAME)
    .replace("@ACTIVATION_MARK@", pods.ACTIVATION)
    .replace("@UID_MARK@", pods.ACTIVATION_UID)
)


def is_whole(content: bytes) -> bool:
    """Whether that is a pod as autarky writes it, from its first line to its last: what the script takes for one."""
    return content.startswith(b"{") and content.endswith(b"}\n") and b'"kind": "Pod"' in content


def parse_list(text: str) -> dict[str, tuple[str | None, tuple[str, ...]]]:
    """`standby list` as component → (current revision or None, activations). Unreachable where it is none: what it
    does not say must not pass for a standby that is not there."""
    result: dict[str, tuple[str | None, tuple[str, ...]]] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) < 2:
            raise Unreachable(f"its list of standbys cannot be read: {line[:40]!a}")
        component, current, *activations = words
        result[component] = (None if current == "-" else current, tuple(activations))
    return result


def parse_boot(text: str) -> str:
    """The boot's id, of what BOOT_FILE says. ValueError."""
    boot_id, _ = text.split()  # the time beside it is for people
    return boot_id


def pod_of(revision_: Revision) -> Object:
    """The pod of a revision, for showing it."""
    pod: Object = json.loads(revision_.files[-1].content)
    return pod
