#!/bin/bash
# What a move of etcd looks at on a control node, and ends. Of containers only those of pods in kube-system count:
# anybody may run a process that is called as one of the control plane's.
#   dialled   prints what the API servers dial as etcd, a line for each that runs, and one for the standby
#   end URL   kills the API servers that dial another etcd than this
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

etcd_of() { # PROCESS: what it dials; one that has just ended has no command line any more
	{ tr '\0' '\n' <"/proc/$1/cmdline" | sed -n 's/^--etcd-servers=//p'; } 2>/dev/null || :
}

dialled() {
	local found process
	found=$(running kube-apiserver)
	for process in $found; do etcd_of "$process"; done
	[ ! -e "$standby/pod.json" ] || sed -n 's/.*"--etcd-servers=\([^"]*\)".*/\1/p' "$standby/pod.json"
}

end() {
	local found process url
	found=$(running kube-apiserver)
	for process in $found; do
		url=$(etcd_of "$process")
		[ -z "$url" ] || [ "$url" = "$1" ] || kill -KILL "$process" 2>/dev/null || :
	done
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
