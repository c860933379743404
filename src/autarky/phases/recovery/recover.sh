#!/bin/bash
# What a recovery of etcd does on a host, with etcd's own programs. WORK is a directory beside the member's data.
#   with ETCD ETCDUTL STEP...     the step with these two programs instead of the host's usual ones
#   made DATA                     prints "made ID" or "placed ID" for each recovery whose new data is complete
#   log DATA WORK                 writes the last two files of the log to WORK, packed, and prints what there is
#   lone DATA                     prints where a member's data is that was moved aside, and nothing is where it was: "cut"
#                                 and the one place that a placing has noted, else "aside" and the only one that there
#                                 is, with when it was written last between the two
#   copy DATA WORK                copies a member's data to WORK/old
#   begin WORK                    makes that directory, instead of what an interrupted recovery has left
#   append WORK OFFSET LENGTH     appends standard input to the last file of the copied log, which ends with it
#   unpack WORK SNAPSHOT          makes WORK/old of a snapshot, which goes
#   replay WORK FORMER            starts an etcd from WORK/old that is its only member, until it has applied its log,
#                                 takes writes, and says which clusters are replaced: FORMER, a list as JSON, and those
#                                 that it has named before; prints that list, and the revision
#   make WORK NAME URL TOKEN BUMP SNAPSHOT [OPTION]   makes the data of a new cluster of one member in WORK/new
#   place DATA WORK KEPT          puts that in the place of the old data, which is kept in DATA/KEPT, or where there is
#                                 such a directory, in KEPT with the recovery's id; prints where, if there was any
#   keys WORK                     writes all keys of the member that runs here, without values, to WORK/keys.gz
#   aside DATA KEPT               moves a former member's data to KEPT, and makes room for a new one's
#   restart COMPONENT...          kills their containers: the kubelet starts them again
set -euo pipefail
bin="@BIN@"
etcd=$bin/etcd etcdutl=$bin/etcdutl
ca="@CA@"
peer_ca="@PEER_CA@" # below the data
member="@MEMBER@"
former_key="@FORMER_KEY@" # in etcd: the clusters that it has replaced
client=unix://localhost:1 peer=unix://localhost:2

with() {
	etcd=$1 etcdutl=$2
	"${@:3}"
}

# From the note of where the old data goes on there is no way back: it may be moved already.
made() {
	for work in "$1"/recovery.*; do
		[ -e "$work/ready" ] || continue
		if [ -d "$work/new/member" ] && [ ! -s "$work/kept" ]; then word=made; else word=placed; fi
		echo "$word ${work##*/recovery.}"
	done
}

logs() { find "$1/member/wal" -maxdepth 1 -name '*.wal' -printf '%f\n' 2>/dev/null | sort | tail -n 2; }

log() {
	install -d -m 700 "$2"
	for file in $(logs "$1"); do
		( umask 077; gzip -1 -c "$1/member/wal/$file" >"$2/$file.gz" )
		echo "log $file"
	done
	[ ! -e "$1/member/snap/db" ] || echo "size $(stat -c %s "$1/member/snap/db")"
	[ ! -d "$1" ] || echo "free $(df --output=avail -B1 "$1" | tail -n 1)"
}

# Where nothing is in its place: a placing may have been cut, and what it has left be gone.
lone() {
	[ ! -d "$1/member" ] || return 0
	all=("$1"/kept.*/member) found=()
	for kept in "${all[@]%/member}"; do
		if grep -qsxF -e "$kept" "$1"/recovery.*/kept; then found+=("$kept"); fi
	done
	word='cut'
	if [ ${#found[@]} -eq 0 ]; then word='aside' found=("${all[@]%/member}"); fi
	kept=${found[0]}
	[ ${#found[@]} -eq 1 ] && [ -d "$kept/member/wal" ] || return 0
	echo "$word $(date -u -r "$kept/member/wal/$(logs "$kept" | tail -n 1)" +%Y-%m-%dT%H:%M:%SZ) $kept"
}

# What an earlier recovery left that did not get so far. Marked, and without its data, it would seem to be placed.
begin() {
	rm -f "${1%/*}"/recovery.*/ready
	rm -rf "${1%/*}"/recovery.*
	install -d -m 700 "$1"
}

copy() {
	begin "$2"
	rm -rf "$2/old"
	install -d -m 700 "$2/old"
	cp -a --sparse=always "$1/member" "$2/old/"
}

append() {
	file=$1/old/member/wal/$(logs "$1/old" | tail -n 1)
	dd of="$file" oflag=seek_bytes seek="$2" conv=notrunc status=none
	truncate -s "$(($2 + $3))" "$file"
}

ctl() { "$bin/etcdctl" --endpoints="$client" --command-timeout=5s "$@"; }

revision() { ctl get nothing -w fields | sed -n 's/^"Revision" : //p'; }

unpack() {
	cd "$1"
	rm -rf old
	"$etcdutl" snapshot restore "$2" --data-dir old >etcdutl.log 2>&1 </dev/null ||
		{ tail -n 3 etcdutl.log >&2; exit 1; }
	rm -f "$2"
}

# A log that holds all entries, and no other member to wait for: what was written last is applied as soon as it leads.
# It also writes its own minor there, as the version of the cluster and of the storage, and that stays in the data that
# is made of this: no older etcd starts from it. So it must be of the minor that is to run with that data, or an earlier.
replay() {
	cd "$1"
	rm -f localhost:1 localhost:2
	"$etcd" --data-dir=old --force-new-cluster --quota-backend-bytes=-1 --log-level=warn \
		--listen-client-urls="$client" --advertise-client-urls="$client" --listen-peer-urls="$peer" \
		>etcd.log 2>&1 </dev/null &
	server=$!
	trap 'kill -KILL $server 2>/dev/null || :' EXIT
	until ctl get nothing >/dev/null 2>&1; do
		kill -0 "$server" 2>/dev/null || { tail -n 3 etcd.log >&2; exit 1; }
		sleep 0.1
	done
	take_writes "$2"
	ctl get "$former_key" --print-value-only
	revision
	kill -TERM "$server"
	wait "$server" || :
	trap - EXIT
}

# An alarm is in the data as well: with it the new etcd would refuse even the note of what it replaces, which has to be
# there before it serves. So it goes while there is no quota; and what has no room without it makes some.
take_writes() {
	alarms=$(ctl alarm list)
	[ -z "$alarms" ] || ctl alarm disarm >/dev/null
	known=$(ctl get "$former_key" --print-value-only)
	ids=$(printf '%s\n' "$1" "$known" | { grep -oE '"[0-9a-f]{1,16}"' || :; } | sort -u | paste -sd ,)
	former="[${ids//,/, }]"
	if [ -n "$alarms" ] || [ "$former" != "${known:-[]}" ]; then ctl put "$former_key" "$former" >/dev/null; fi
	[ -z "$alarms" ] || make_room
}

# The history goes: the last write is of a revision that was never compacted. Where the disk has no room for the smaller
# database, that is as full as it was.
make_room() {
	ctl --command-timeout=10m compact --physical "$(revision)" >/dev/null
	ctl --command-timeout=10m defrag >/dev/null || :
}

make() {
	cd "$1"
	rm -rf ready new
	"$etcdutl" snapshot restore "$6" --data-dir new --name "$2" --initial-cluster "$2=$3" \
		--initial-advertise-peer-urls "$3" --initial-cluster-token "$4" --bump-revision "$5" --mark-compacted \
		"${@:7}" >etcdutl.log 2>&1 </dev/null || { tail -n 3 etcdutl.log >&2; exit 1; }
	install -m 600 "$ca" "new/$peer_ca"
	sync -f new
	: >ready && sync ready .
}

# Interrupted between the two renames, the second one is still to be made.
place() {
	[ -e "$2/ready" ]
	if [ ! -s "$2/kept" ]; then
		name=$1/$3
		[ ! -e "$name" ] || name=$name.${2##*/recovery.}
		echo "$name" >"$2/.kept" && sync "$2/.kept" && mv "$2/.kept" "$2/kept" && sync "$2"
	fi
	kept=$(cat "$2/kept")
	[ ! -d "$2/new/member" ] || put_in "$1" "$2/new" "$kept"
	[ ! -d "$kept/member" ] || echo "$kept"
}

put_in() {
	if [ -d "$1/member" ]; then
		install -d -m 700 "$3"
		mv -T "$1/member" "$3/member"
		sync "$3" "$1"
	fi
	mv -T "$2/member" "$1/member"
	sync "$1" "$2"
}

aside() {
	if [ -d "$1/member" ]; then
		install -d -m 700 "$2"
		mv -T "$1/member" "$2/member"
		sync "$2" "$1"
	fi
	install -d -m 700 "$1/member"
	install -m 600 "$ca" "$1/$peer_ca"
	sync "$1/member" "$1/$peer_ca" "$1"
}

# etcdctl gives up after 5 s by itself, in which half a million keys are not listed; whoever asks has a limit of his own.
keys() {
	install -d -m 700 "$1"
	( umask 077; "$bin/etcdctl" --endpoints="$member" --cacert="$ca" --cert="${ca%/*}/server.crt" \
		--key="${ca%/*}/server.key" --command-timeout=10m get "" --prefix --keys-only -w json | gzip -1 >"$1/keys.gz" )
}

restart() {
	ctr="$bin/ctr --namespace k8s.io"
	for component; do
		for container in $($ctr containers ls -q \
			"labels.\"io.kubernetes.pod.namespace\"==kube-system,labels.\"io.kubernetes.container.name\"==$component"); do
			$ctr tasks kill -s KILL -a "$container" 2>/dev/null || :
		done
	done
}

"$@"
