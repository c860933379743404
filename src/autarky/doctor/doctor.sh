#!/bin/bash
# What a host of a cluster reports about itself: a line per observation, starting with its kind ("unit", "free", …).
# Arguments: the API servers as the load balancer calls them. "-" means no answer.
units="@UNITS@"
disks="@DISKS@"
manifests="@MANIFESTS@"
fence="@FENCE@"
kept="@KEPT@" # former data of etcd
copy="@COPY@"
peer_ca="@PEER_CA@" # by which etcd knows its peers
kubelets="@KUBELETS@" # the generations of the kubelet, and what is written there while it changes
slot_lock="@SLOT_LOCK@" # of the kubelet that is in force, where there is one of a pod as well
etcd_port=@ETCD_PORT@
balancer_port=@BALANCER_PORT@
configuration_path="@CONFIGURATION_PATH@"
configuration_file="@CONFIGURATION_FILE@"
api_ports="@API_PORTS@"
sync_seconds=@SYNC_SECONDS@

# ask PORT PATH: the status of the answer.
ask() {
  line=$(exec 2>/dev/null; exec 3<>"/dev/tcp/127.0.0.1/$1" && printf 'GET %s HTTP/1.0\r\n\r\n' "$2" >&3 &&
    timeout 3 head -n 1 <&3) || line=-
  status=${line#* } status=${status%% *}
  echo "${status:--}"
}

# read_all PORT PATH: the answer, headers included.
read_all() {
  exec 3<>"/dev/tcp/127.0.0.1/$1" && printf 'GET %s HTTP/1.0\r\n\r\n' "$2" >&3 && timeout 3 cat <&3
} 2>/dev/null

# How long etcd's WAL syncs have taken: sum:SECONDS count:NUMBER, and BOUND:NUMBER of those that were no longer.
syncs() {
  read_all "$etcd_port" /metrics | sed -nE 's/^etcd_disk_wal_fsync_duration_seconds_(sum|count) /\1:/p
    s/^etcd_disk_wal_fsync_duration_seconds_bucket\{le="([^"]*)"\} /\1:/p' | xargs echo
}

# etcd's database: its size, the most that it may have, the entries of the log that it has.
database() {
  read_all "$etcd_port" /metrics | sed -nE -e 's/^etcd_mvcc_db_total_size_in_bytes /database size /p' \
    -e 's/^etcd_server_quota_backend_bytes /database quota /p' \
    -e 's/^etcd_server_proposals_applied_total /database applied /p'
}

# All members report the alarms of each.
alarms() {
  read_all "$etcd_port" /health | grep -oE 'ALARM [A-Z]+' | sort -u | sed 's/^ALARM/alarm/'
}

# What the files of the kubelet's generations say, the last words of one that went back included.
kubelet() {
  echo "kubelet host boot $(cat /proc/sys/kernel/random/boot_id)"
  echo "kubelet host uptime $(cut -d . -f 1 /proc/uptime)"
  [ ! -s "$kubelets/base.json" ] || echo "kubelet host base yes"
  [ ! -s "$kubelets/current/complete" ] || echo "kubelet host current $(readlink "$kubelets/current")"
  for name in ask trial result hosted; do
    if [ -f "$kubelets/$name" ]; then head -c 4096 "$kubelets/$name" | sed "s/^/kubelet $name /" && echo; fi
  done
  if [ -f "$kubelets/last-words" ]; then tail -n 3 "$kubelets/last-words" | tail -c 1000 | sed 's/^/kubelet words /'; fi
  echo
  processes
}

# For how many seconds the process has run: /proc/PID.
age_of() {
  started=$(cut -d ' ' -f 22 "$1/stat")
  echo $(($(cut -d . -f 1 /proc/uptime) - started / $(getconf CLK_TCK)))
}

# Kubelets that do not wait for the lock, and for how many seconds they have run. Not those of containers on this host.
processes() {
  for process in /proc/[0-9]*; do
    if read -r comm <"$process/comm" && [ "$comm" = kubelet ] && [ "$process/ns/pid" -ef /proc/self/ns/pid ] &&
      ! waits "$process"; then
      echo "kubelet process ${process#/proc/} $(age_of "$process")"
    fi
  done 2>/dev/null
}

# For a lock of the kubelet's slots. Not by /proc/locks: that takes long to read where some pod has very many.
waits() {
  for descriptor in "$1"/fd/*; do
    case "$(readlink "$descriptor")" in
    "$slot_lock" | "$slot_lock (deleted)") ! grep -q '^lock:' "$1/fdinfo/${descriptor##*/}" && return 0 ;;
    esac
  done
  return 1
}

# A member that has run since more than some seconds before that file was written: it reads it at its start only.
trusts_others() {
  written=$(stat -c %Y "$peer_ca") || return 0
  for process in /proc/[0-9]*; do
    if read -r comm <"$process/comm" && [ "$comm" = etcd ] &&
      grep -qzxF -e "--peer-trusted-ca-file=$peer_ca" "$process/cmdline" &&
      [ $(($(date +%s) - $(age_of "$process") + 5)) -lt "$written" ]; then
      echo "trusts -"
    fi
  done
} 2>/dev/null

for unit in $units; do echo "unit $unit $(systemctl is-active "$unit")"; done
for path in $disks; do
  echo "free $path $(df --output=avail -B1 "$path" 2>/dev/null | tail -n 1 | tr -d ' ')"
done
echo "etcd $(ask "$etcd_port" /readyz)"
database
alarms
for file in "$manifests"/etcd-*; do
  if [ -e "$file" ]; then echo "member -"; fi
done
[ ! -e "$fence" ] || echo "fence -"
[ ! -e "$copy" ] || echo "copy -"
trusts_others
for directory in "$kept"*; do
  [ ! -d "$directory" ] || echo "kept -"
done
kubelet
echo "balancer $(ask "$balancer_port" /)"
for server; do
  echo "server $server $(ask "$balancer_port" "/$server")"
  echo "alive $server $(ask "$balancer_port" "/alive/$server")"
done
name=$(read_all "$balancer_port" "$configuration_path" | tail -n 1)
if [ -z "$name" ] || grep -q "string $name if " "$configuration_file"; then echo "stale no"; else echo "stale yes"; fi
for port in $api_ports; do
  (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && echo "accepts $port"
done
before=$(syncs)
[ -z "$before" ] || { sleep "$sync_seconds"; echo "syncs $before / $(syncs)"; }
