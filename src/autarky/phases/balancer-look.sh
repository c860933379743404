# shellcheck shell=bash
# What runs of the load balancer on this host, a word on each line: `former`, if there is one of another generation;
# `listens`, if the one of the pod with this uid accepts connections on its health port; and `answers`, if so many
# connections in a row were answered by 200 there. The kernel spreads them over all that listen.
#   $1: /proc   $2: health port   $3: uid   $4: connections
proc=$1 port=$2 uid=${3//-/.} connections=$4 former='' listens=''
ours='@OURS@' # an argument of theirs, and so none of this program's
number=$(printf %04X "$port")
listening=()
while read -r _ address _ state _ _ _ _ _ inode _; do
  [ "$state" = 0A ] && [ "${address#*:}" = "$number" ] && listening+=("socket:[$inode]")
done <"$proc/net/tcp"
# One program for all descriptors of a process, not one for each: a balancer has thousands of them.
while read -r process; do
  process=${process%/cmdline}
  if ! [[ $(<"$process/cgroup") =~ pod$uid ]]; then
    former=yes
  elif find "$process/fd" -printf '%l\n' | grep -qxF -f <(printf '%s\n' "${listening[@]:-none}"); then
    listens=yes
  fi
done < <(grep -lzxF -- "$ours" "$proc"/[0-9]*/cmdline) 2>/dev/null
answered=0
while [ -n "$listens" ] && [ "$answered" -lt "$connections" ]; do
  exec 3<>"/dev/tcp/127.0.0.1/$port" || break
  printf 'GET / HTTP/1.0\r\n\r\n' >&3 || break
  read -t 5 -r line <&3 || break
  [[ $line == *' 200 '* ]] || break
  answered=$((answered + 1))
done 2>/dev/null
[ -z "$former" ] || echo former
[ -z "$listens" ] || echo listens
[ "$answered" -lt "$connections" ] || echo answers
