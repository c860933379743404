#!/bin/bash
# What a move of etcd looks at on a control node. Of containers only those of pods in kube-system count: anybody may run
# a process that is called as one of the control plane's.
#   dialled   prints what the API servers dial as etcd, a line for each that runs, and one for the standby
#   ended     waits until no etcd runs, 45 s at most
set -euo pipefail
shopt -s inherit_errexit # what cannot be listed is not absent
ctr="@BIN@/ctr --namespace k8s.io"
standby="@STANDBY@"

running() { # COMPONENT: the processes of its containers
	local tasks containers container
	tasks=$($ctr tasks ls)
	containers=$($ctr containers ls -q \
		"labels.\"io.kubernetes.pod.namespace\"==kube-system,labels.\"io.kubernetes.container.name\"==$1")
	for container in $containers; do
		awk -v container="$container" '$1 == container && $3 == "RUNNING" { print $2 }' <<<"$tasks"
	done
}

dialled() {
	local found process
	found=$(running kube-apiserver)
	for process in $found; do # one that has just ended has no command line any more
		tr '\0' '\n' <"/proc/$process/cmdline" | sed -n 's/^--etcd-servers=//p' || :
	done 2>/dev/null
	[ ! -e "$standby/pod.json" ] || sed -n 's/.*"--etcd-servers=\([^"]*\)".*/\1/p' "$standby/pod.json"
}

ended() {
	local seconds found
	for seconds in $(seq 45); do
		found=$(running etcd)
		[ -n "$found" ] || return 0
		sleep 1
	done
	echo "etcd still runs after $seconds s: $found" >&2
	return 1
}

"$@"
