#!/bin/sh
# Activates, withdraws and lists the standby static pods of the control plane. Written by autarky.
#   standby boot                 before the kubelet starts: activate the API server, unless it answers on its own port
#                                (at a boot in the turn of this member of etcd)
#   standby boot-rest            the others that have a standby, unless the hosted ones answer within @REST_SECONDS@ s
#   standby switch COMPONENT REVISION   make a complete revision the current one
#   standby activate COMPONENT   a new activation of the current revision, unless one is in place
#                                (of the previous one when the current one is incomplete)
#   standby renew COMPONENT      a new activation in place of the existing ones, if there is any
#   standby withdraw COMPONENT   remove the manifests of all its activations (the kubelet stops the pods)
#   standby restore-etcd         put etcd's former static pod back, where a change was interrupted and left none
#   standby fence-etcd           take etcd's static pod away, as long as a recovery of etcd is under way
#   standby release-etcd         the recovery is over: put it back
#   standby outdated             the components with another revision in place than the current one
#   standby list                 COMPONENT REVISION ACTIVATIONS, one line each
set -u
run="@RUN@"
standby="@STANDBY@"
manifests="@MANIFESTS@"
etcd_member="@ETCD_MEMBER@"   # its data
etcd_former="@ETCD_FORMER@"   # its static pod as it was before a change
etcd_change="@ETCD_CHANGE@"   # a change of it by the node agent, which would put a static pod back
etcd_fence="@ETCD_FENCE@"     # exists during a recovery
etcd_fenced="@ETCD_FENCED@"   # its static pod, meanwhile
etcd_cluster="@ETCD_CLUSTER@" # the id of the cluster of its data
etcd_members="@ETCD_MEMBERS@" # the addresses of all members
etcd_client="@ETCD_CLIENT@"   # etcdctl and its credentials
control_node_state="@CONTROL_NODE_STATE@"
etcd_port=@ETCD_PORT@
etcd_peer_port=@ETCD_PEER_PORT@
former_key="@FORMER_KEY@" # in etcd: the clusters that it has replaced
components="@COMPONENTS@"
api=@API@
led_by_lease="@LED_BY_LEASE@"
hosted_ports="@HOSTED_PORTS@" # COMPONENT=PORT
api_port=@API_PORT@ # of the API server's standby
spare_port=@SPARE_PORT@ # of its next standby, while the previous one drains
revision_key="@REVISION_KEY@"
activation_name="@ACTIVATION_NAME@" # a pattern
activation_mark="@ACTIVATION_MARK@"
uid_mark="@UID_MARK@"
rest_seconds=@REST_SECONDS@
lock_seconds=@LOCK_SECONDS@
turn_seconds=@TURN_SECONDS@
no_lock=@NO_LOCK@ # exit status: nothing was done

hosted_port() {
	for one in $hosted_ports; do [ "${one%=*}" != "$1" ] || echo "${one#*=}"; done
}

answers() { bash -c "exec 3<>/dev/tcp/127.0.0.1/$1" 2>/dev/null; }

# shellcheck disable=SC2010 # a glob cannot tell the pattern from other names with this prefix; all names are ours
manifests_of() { ls "$manifests" 2>/dev/null | grep "^standby-$1-$activation_name\.json\$"; }

# Whether the file is a complete pod as autarky writes it.
intact() {
	[ -f "$1" ] && [ "$(head -c 1 "$1" | tr -d '\0')" = "{" ] && [ "$(tail -c 2 "$1" | tr -d '\0')" = "}" ] &&
		grep -q '"kind": "Pod"' "$1"
}

active() { for file in $(manifests_of "$1"); do intact "$manifests/$file" && echo "$file"; done; }

# The pod of the current revision; of the previous one when the current one is incomplete.
newest_intact() {
	for link in current previous; do
		if intact "$standby/$1/$link/pod.json"; then echo "$standby/$1/$link/pod.json"; return 0; fi
		[ ! -L "$standby/$1/$link" ] || echo "the $link revision of $1 is incomplete" >&2
	done
	echo "no complete standby of $1" >&2
	return 1
}

# Whether what is in place is of the current revision. Where that is incomplete, there is nothing better.
up_to_date() {
	intact "$standby/$1/current/pod.json" || return 0
	revision=$(readlink "$standby/$1/current")
	for file in $(active "$1"); do
		grep -q "\"$revision_key\": \"$revision\"" "$manifests/$file" || return 1
	done
}

# The API server's previous activation may still drain on its port: then the next one takes the spare port.
onto_spare_port() {
	[ "$1" = "$api" ] && answers "$api_port" || return 0
	echo "s/--secure-port=$api_port/--secure-port=$spare_port/; s/\"port\": $api_port/\"port\": $spare_port/"
}

activate() {
	[ -z "$(active "$1")" ] || return 0
	mkdir -p "$manifests" && withdraw "$1" # what is there is incomplete
	put_in_place "$1"
}

# A kubelet never retries a pod that it has rejected. Nothing in place: it was withdrawn meanwhile, and stays withdrawn.
renew() {
	old=$(manifests_of "$1")
	[ -n "$old" ] || return 0
	put_in_place "$1" || return 1
	for file in $old; do rm -f "$manifests/$file"; done
	sync "$manifests"
}

put_in_place() {
	pod=$(newest_intact "$1") || return 1
	uid=$(cat /proc/sys/kernel/random/uuid) || return 1
	activation=${uid%%-*}
	mkdir -p "$manifests"
	rm -f "$manifests/.standby-$1-"* # left by an activation that was interrupted
	temporary=$manifests/.standby-$1-$activation
	marks="s/$activation_mark/$activation/g; s/$uid_mark/$uid/g"
	( umask 077; sed "$marks; $(onto_spare_port "$1")" "$pod" >"$temporary" ) || return 1
	sync "$temporary" && mv "$temporary" "$manifests/standby-$1-$activation.json" && sync "$manifests"
}

# Not `ln -f`: where the link exists, ln first makes another under a random name, which a power cut would leave behind.
point() {
	rm -f "$standby/$1/.next" && ln -s "$3" "$standby/$1/.next" || return 1
	mv -T "$standby/$1/.next" "$standby/$1/$2" && sync "$standby/$1"
}

switch() {
	intact "$standby/$1/$2/pod.json" || { echo "no revision $2 of $1" >&2; return 1; }
	old=$(readlink "$standby/$1/current" 2>/dev/null) || old=$2
	[ "$old" = "$2" ] || ! intact "$standby/$1/$old/pod.json" || point "$1" previous "$old" || return 1
	point "$1" current "$2"
}

withdraw() {
	for file in $(manifests_of "$1"); do rm -f "$manifests/$file"; done
	sync "$manifests"
}

outdated() { for component in $components; do up_to_date "$component" || echo "$component"; done; }

list() {
	for component in $components; do
		current=$(readlink "$standby/$component/current" 2>/dev/null) || current=-
		printf '%s %s' "$component" "$current"
		for file in $(active "$component"); do
			file=${file#standby-"$component"-}
			printf ' %s' "${file%.json}"
		done
		echo
	done
}

# One writer at a time: the node agent, `up` and the kubelet's start may coincide. Whoever can open the file, even for
# reading, can hold the lock: so only root can.
lock() {
	( umask 077; mkdir -p "$run" && chmod 700 "$run" && : >>"$run/standby.lock" && chmod 600 "$run/standby.lock" ) ||
		return 1
	exec 9>>"$run/standby.lock" && flock -w "$lock_seconds" 9
}

# A change made without the lock might undo another one made at the same time.
need_lock() {
	lock || { echo "standby: nothing was done: $run/standby.lock is held by another process or cannot be created" >&2; exit "$no_lock"; }
}

# Written before any control plane process of this boot runs: whoever held a lease in an earlier boot is dead.
note_boot() {
	[ ! -f "$run/boot" ] || return 0
	( umask 077; mkdir -p "$run" ) && echo "$(cat /proc/sys/kernel/random/boot_id) $(date +%s.%N)" >"$run/.boot" &&
		mv "$run/.boot" "$run/boot"
}

# Of all members of etcd, in the order of their names.
member_addresses() { sed -n 's/.*"address": "\([0-9.]*\)".*/\1/p' "$etcd_members" 2>/dev/null; }

# A member of etcd asks each other one for a hash before it serves, and waits for 7 s for one that has begun and does not
# serve yet: after a power cut of all, each for every other one. So they begin in the order of their names, each behind
# those before it that have not begun. Where all others run, nobody waits.
take_turn() {
	[ ! -f "$run/boot" ] || return 0
	own=$(sed -n 's#.*--listen-peer-urls=https://\([0-9.]*\):.*#\1#p' "$manifests"/etcd-* 2>/dev/null | head -n 1)
	seconds=0
	for address in $(member_addresses); do
		if [ "$address" = "$own" ]; then sleep "$seconds"; return 0; fi
		timeout 1 bash -c "exec 3<>/dev/tcp/$address/$etcd_peer_port" 2>/dev/null || seconds=$((seconds + turn_seconds))
	done
}

# `up` was interrupted between removing one and writing the other. A member without data has left the cluster.
restore_etcd() {
	[ -d "$etcd_member/wal" ] && intact "$etcd_former" && [ ! -e "$etcd_fence" ] || return 0
	for file in "$manifests"/etcd-*; do [ ! -e "$file" ] || return 0; done
	put_etcd "$etcd_former"
}

put_etcd() {
	name=$(grep -o '"name": "etcd-[0-9a-f]*"' "$1" | head -n 1 | cut -d '"' -f 4)
	[ -n "$name" ] || return 0
	( umask 077; cp "$1" "$manifests/.$name" ) && sync "$manifests/.$name" &&
		mv "$manifests/.$name" "$manifests/$name.json" && sync "$manifests"
}

# Also before the kubelet starts: the power may have failed between the fence and this.
fence_etcd() {
	[ -e "$etcd_fence" ] || return 0
	for file in "$manifests"/etcd-*; do
		[ -e "$file" ] || continue
		if intact "$file"; then
			( umask 077; cp "$file" "$etcd_fenced.next" ) && sync "$etcd_fenced.next" &&
				mv "$etcd_fenced.next" "$etcd_fenced" && sync "${etcd_fenced%/*}" || return 1
		fi
		rm -f "$file"
	done
	rm -f "$manifests"/second-etcd-*
	sync "$manifests"
}

# The fence goes last: with it a member is not started twice, and without it nothing would start one if this ends here;
# nor is a pod left then that a later release would put back.
release_etcd() {
	if [ -e "$etcd_fence" ] && intact "$etcd_fenced"; then put_etcd "$etcd_fenced" || return 1; fi
	rm -f "$etcd_fenced" "$etcd_fence" && sync "${etcd_fence%/*}"
}

# A recovery may have made another etcd while this machine was off; two of three old members would go on as the old one.
# The agent looks for that, too, later, and moves the data aside.
leave_former() {
	own=$(cat "$etcd_cluster" 2>/dev/null) && [ -n "$own" ] || return 0
	for address in $(member_addresses); do
		said=$($etcd_client --endpoints="https://$address:$etcd_port" get "$former_key" --write-out=fields 2>/dev/null)
		says_replaced "$own" "$said" || continue
		need_lock
		rm -f "$etcd_change" "$etcd_former" "$manifests"/etcd-* "$manifests"/second-etcd-*
		sync "${etcd_change%/*}" "$manifests"
		return 0
	done
}

# Whether a member of another cluster says it of this one, whose members say nothing that counts. etcdctl prints that
# number as a decimal one, and the quotes inside of the value behind backslashes.
says_replaced() {
	cluster=$(printf '%s\n' "$2" | sed -n 's/^"ClusterID" : \([0-9]*\)$/\1/p')
	[ -n "$cluster" ] && [ "$cluster" != "$(printf %u "0x$1" 2>/dev/null)" ] || return 1
	case "$2" in *"\\\"$1\\\""*) ;; *) return 1 ;; esac
}

boot() { note_boot; fence_etcd; restore_etcd; activate_silent "$api"; }

boot_rest() {
	( leave_former ) &
	waiting=$(resting)
	attempts=$rest_seconds
	# shellcheck disable=SC2086 # a list of names
	until all_answer $waiting || [ "$attempts" -eq 0 ]; do sleep 1; attempts=$((attempts - 1)); done
	need_lock
	for component in $waiting; do activate_silent "$component"; done
}

# The components with a standby that is not active: none on a worker, or where level 3 is not hosted.
resting() {
	for component in $led_by_lease; do
		[ ! -L "$standby/$component/current" ] || [ -n "$(active "$component")" ] || echo "$component"
	done
}

all_answer() {
	for component in "$@"; do answers "$(hosted_port "$component")" || return 1; done
}

activate_silent() { ceases || answers "$(hosted_port "$1")" || activate "$1"; }

# No part of a control node runs here any more: a power cut may have brought back what its agent had removed.
ceases() { grep -q '"state": "ceasing"' "$control_node_state" 2>/dev/null; }

case "${1-}" in
list | outdated) "$1" ;;
boot) take_turn; lock || echo "going on without the lock: the kubelet is waiting" >&2; boot ;;
boot-rest) boot_rest ;;
restore-etcd) need_lock; restore_etcd ;;
fence-etcd) need_lock; fence_etcd ;;
release-etcd) need_lock; release_etcd ;;
activate | renew | withdraw) need_lock; "$1" "$2" ;;
switch) need_lock; switch "$2" "$3" ;;
*) sed -n 's/^#   //p' "$0" >&2; exit 2 ;;
esac
