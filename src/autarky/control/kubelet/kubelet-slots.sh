#!/bin/sh
# Switches the kubelet's generation (its program, arguments and configuration, and the container runtime), and goes back
# to the former one unless the new one is proven in time. Written by autarky.
#   kubelet-slots carry-out      carry out what was asked for, or go on with what was interrupted
#   kubelet-slots boot           before containerd and before the kubelet: back, if the machine restarted during a trial
#   kubelet-slots start          become the kubelet, with the current generation
#   kubelet-slots start hosted PROGRAM   become that kubelet, of a pod, with its settings
#   kubelet-slots stop PID       end the host's kubelet at once, if it waits for the lock
#   kubelet-slots lock PID       print whether that process has the lock: "held", or "awaited"
#   kubelet-slots hosted         whether the kubelet of a pod runs
#   kubelet-slots aside          end that one, if it does: the host's is in force then
#   kubelet-slots switch GENERATION   make it the current one with no trial, where no kubelet runs
set -u
dir="@KUBELETS@"
run="@RUN@"
programs="@PROGRAMS@" # that a generation has
runtime="@RUNTIME@"   # those of them for which containerd is restarted
kubeconfig="@KUBECONFIG@"
bootstrap="@BOOTSTRAP@" # the kubeconfig to request a certificate with
certificate="@CERTIFICATE@"
ca_key="@CA_KEY@"
signers="@SIGNERS@" # how the path of an agent begins that signs with it
health_port=@HEALTH_PORT@
slot_lock="@LOCK@" # of the kubelet that is in force, where there is one of a pod as well
hosted_port=@HOSTED_PORT@
most_exits=@MOST_EXITS@
limits="@LIMITS@" # the least and the most seconds for a proof; the most, too, where the clock is stopped
wait_seconds=@WAIT_SECONDS@ # as long as a verdict stops the clock
ask_seconds=@ASK_SECONDS@   # as long as what allowed a change is taken to hold
no_lock=@NO_LOCK@           # exit status: nothing was done
halted="the machine restarted before it was proven"

# --- the disk ---

# What follows KEY in FILE; of several the first.
value() {
	[ -f "$dir/$1" ] || return 1
	while read -r key rest; do
		[ "$key" != "$2" ] || { printf '%s\n' "$rest"; return 0; }
	done <"$dir/$1"
	return 1
}

# On a full disk the reserve makes room.
put() { write "$1" "$2" 2>/dev/null || { rm -f "$dir/reserve"; write "$1" "$2"; }; }
write() { printf '%s\n' "$2" >"$dir/.$1" && sync "$dir/.$1" && mv -T "$dir/.$1" "$dir/$1" && sync "$dir"; }

# Not `ln -f`: where the link exists, ln first makes another under a random name, which a power cut would leave behind.
point() { rm -f "$dir/.next" && ln -s "$2" "$dir/.next" && mv -T "$dir/.next" "$dir/$1" && sync "$dir"; }

is_name() { case "$1" in "" | [.-]* | *[!A-Za-z0-9._-]*) return 1 ;; esac; }
is_number() { case "$1" in "" | *[!0-9]* | 0?* | ??????????*) return 1 ;; esac; }

is_complete() {
	is_name "$1" && [ "$(value "$1/complete" generation)" = "$1" ] || return 1
	for name in $programs; do [ -x "$dir/$1/$name" ] && [ -s "$dir/$1/$name" ] || return 1; done
	[ -s "$dir/$1/arguments" ] && [ -s "$dir/$1/config.json" ]
}

# No programs: one that could not be started would say that this is another boot.
boot_id() { read -r id </proc/sys/kernel/random/boot_id && echo "$id"; }
uptime() { read -r seconds _ </proc/uptime && echo "${seconds%%.*}"; }

# Reads the trial. False where there is none, or where its order has a result.
under_trial() {
	order=$(value trial order) && former=$(value trial former) || return 1
	generation=$(value trial generation) phase=$(value trial phase) boot=$(value trial boot) why=$(value trial why)
	until=$(value trial until) ceiling=$(value trial ceiling)
	is_number "$until" && is_number "$ceiling" || until=0 ceiling=0
	is_name "$former" && [ "$order" != "$(value result order)" ]
}

of_this_boot() { [ "$boot" = "$(boot_id)" ]; }

# PHASE WHY
record() {
	phase=$1 why=$2
	put trial "$(printf 'order %s\ngeneration %s\nformer %s\nphase %s\nboot %s\nuntil %s\nceiling %s\nwhy %s' \
		"$order" "$generation" "$former" "$phase" "$boot" "$until" "$ceiling" "$why")"
}

# RESULT WHY. The order is over once this is written. A restart of the machine has interrupted no trial that was on its
# way back already.
conclude() {
	[ "${phase-}" = back ] || boot=$(boot_id)
	put result "$(printf 'order %s\nresult %s\ngeneration %s\nformer %s\nboot %s\nwhy %s' \
		"$order" "$1" "$generation" "$former" "$boot" "$2")" && forget
}

# The ask last: as long as it is there, systemd starts this again.
forget() {
	rm -f "$dir/trial" "$dir/verdict" "$dir/reserve" && sync "$dir" || return 1
	[ "$(value ask order)" != "$order" ] || rm -f "$dir/ask"
	sync "$dir"
}

# --- systemd, the journal and the kubelet ---

unit() { timeout 100 systemctl "$@"; }
runtime_of() { for name in $runtime; do readlink "$dir/$1/$name"; done; }
same_runtime() { [ "$(runtime_of "$generation")" = "$(runtime_of "$former")" ]; }

# A restart during one of systemd's own does not reset its count, which is that of the other generation.
restart() {
	failed=0
	aside
	same_runtime || unit restart containerd || failed=1
	unit restart kubelet || failed=1
	unit reset-failed kubelet
	return "$failed"
}

# The kubelet of a pod, if one runs, as $pid.
hosted() {
	pid=$(cat "$run/kubelet-hosted" 2>/dev/null) && is_number "$pid" || return 1
	grep -qs -- "--healthz-port=$hosted_port" "/proc/$pid/cmdline"
}

# Its supervisor starts no other as long as there is a trial.
aside() {
	hosted || return 0
	kill "$pid"
	looks=0
	while [ "$looks" -lt 50 ] && kill -0 "$pid" 2>/dev/null; do looks=$((looks + 1)) && sleep 0.1; done
	kill -KILL "$pid" 2>/dev/null || :
}

# 0 where systemd does not say: then the limit decides.
exits() {
	count=$(unit show kubelet --property=NRestarts --value) && is_number "$count" || count=0
	echo "$count"
}

# A user's arguments may close the port, or move it to another address: unknown is no failure.
answers() {
	port=$(sed -n 's/^--healthz-port=//p' "$dir/$1/arguments" | tail -n 1)
	[ "$port" != 0 ] && ! grep -q '^--healthz-bind-address=' "$dir/$1/arguments" || return 0
	# shellcheck disable=SC2016 # for bash, which has /dev/tcp
	timeout 5 bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$0" && printf "GET /healthz HTTP/1.0\r\n\r\n" >&3 && cat <&3' \
		"${port:-$health_port}" 2>/dev/null | head -n 1 | grep -q ' 200 '
}

# At five looks in a row: one that exits runs, too, now and then.
former_is_well() {
	end=$(($(uptime) + 60)) seen=0
	while [ "$seen" -lt 5 ]; do
		if [ "$(uptime)" -ge "$end" ] || [ "$(exits)" -ge "$most_exits" ]; then return 1; fi
		if unit is-active --quiet kubelet && answers "$former"; then seen=$((seen + 1)); else seen=0; fi
		sleep 1
	done
}

# Errors, of klog or of the command line, if there are any.
last_words() {
	said=$(timeout 10 journalctl _SYSTEMD_UNIT=kubelet.service --lines=60 --no-pager --output=cat 2>/dev/null)
	errors=$(printf '%s\n' "$said" | grep -E '^[EF][0-9]{4} |\berr=|^Error') || errors=$said
	printf '%s\n' "$errors" | tail -n 20 | tail -c 4000
}

# --- a trial ---

# A trial comes first, whatever is asked for meanwhile.
carry_out() {
	if under_trial && of_this_boot; then
		case "$phase" in forth) forth ;; proving) prove ;; *) back "$why" ;; esac
	elif under_trial; then revert "$halted"
	elif [ -f "$dir/trial" ]; then forget
	elif [ -f "$dir/ask" ]; then begin
	fi
}

begin() {
	order=$(value ask order) generation=$(value ask generation) limit=$(value ask limit) asked=$(value ask uptime)
	former=$(readlink "$dir/current") || former=-
	boot=$(boot_id) now=$(uptime)
	may_begin || { rm -f "$dir/verdict" "$dir/reserve" "$dir/ask" && sync "$dir"; return; }
	is_complete "$generation" || { conclude refused "the generation $generation is not complete"; return; }
	is_complete "$former" || { conclude refused "there is no complete generation to go back to"; return; }
	same_runtime || runtime_starts || { conclude refused "its $name cannot say its version"; return; }
	rm -f "$dir/verdict" "$dir/last-words" "$run/kubelet-starts"
	until=$((now + limit)) ceiling=$((now + ${limits#* }))
	{ head -c 65536 /dev/zero >"$dir/reserve" && sync "$dir/reserve" && record forth ""; } ||
		{ conclude refused "the disk is full"; return; }
	forth
}

# Another runtime, on the host, whose libraries it may need: pods outlive the switch also where none could be started.
# It has to say something: what is no program at all may be run as an empty script.
runtime_starts() {
	for name in $runtime; do
		case "$name" in containerd-shim-*) flag=-v ;; *) flag=--version ;; esac
		said=$(timeout 10 "$dir/$generation/$name" "$flag" </dev/null 2>/dev/null) && [ -n "$said" ] || return 1
	done
}

# Otherwise the ask is dropped, with no result of its own: whoever asks looks whether it still may, and asks again.
may_begin() {
	is_name "$order" && is_name "$generation" && is_number "$limit" && is_number "$asked" &&
		[ "$limit" -ge "${limits% *}" ] && [ "$limit" -le "${limits#* }" ] && [ "$(value ask boot)" = "$boot" ] &&
		[ "$asked" -le "$now" ] && [ $((now - asked)) -le "$ask_seconds" ] && [ "$order" != "$(value result order)" ] &&
		is_backed
}

# Whether the host's kubelet would be in force without that of a pod: a trial begins with the end of that one.
is_backed() {
	hosted || return 0
	host=$(unit show kubelet --property=MainPID --value) && is_number "$host" && [ "$(lock_of "$host")" = awaited ]
}

forth() {
	{ point current "$generation" && restart; } || { back "it could not be started"; return; }
	record proving "" || { back "the disk is full"; return; }
	prove
}

prove() {
	last=$(uptime)
	while now=$(uptime) exited=$(exits); do
		[ "$exited" -lt "$most_exits" ] || { back "the kubelet has exited $exited times"; return; }
		case "$(verdict)" in
		good) accept; return ;;
		wait) until=$((until + now - last)) ;;
		esac
		if [ "$now" -ge "$until" ] || [ "$now" -ge "$ceiling" ]; then break; fi
		last=$now
		sleep 1
	done
	[ "$(value verdict order)" != "$order" ] || why=$(value verdict why)
	back "it was not proven in time${why:+: $why}"
}

# One that stops the clock counts only while it is fresh.
verdict() {
	[ "$(value verdict order)" = "$order" ] || return 0
	said=$(value verdict verdict) at=$(value verdict uptime)
	[ "$said" != wait ] || { is_number "$at" && [ $((now - at)) -lt "$wait_seconds" ]; } && echo "$said"
}

accept() {
	[ "$former" = "$generation" ] || point previous "$former"
	conclude good ""
}

# WHY is written first: a script that is killed here must not go on with the proof.
back() {
	record back "$1"
	words=$(last_words)
	[ -z "$words" ] || [ -s "$dir/last-words" ] || put last-words "$words"
	point current "$former" || return 1
	if restart && former_is_well; then result=back; else result=failed; fi
	[ "$result" = back ] || why="$why; and with the former generation the kubelet is not healthy, either"
	until conclude "$result" "$why"; do sleep 5; done # here, since the next run would restart the kubelet
}

# The same where nothing is to be restarted. Phase back has a reason of its own.
revert() { point current "$former" && conclude back "${why:-$1}"; }

# --- the kubelet's start ---

# A trial of this boot is left alone: it waits for this kubelet to start. One of another boot restarts nothing.
boot() {
	under_trial && ! of_this_boot || return 0
	lock -w 20 || echo "going on without the lock: the kubelet is waiting" >&2
	! under_trial || of_this_boot || revert "$halted"
}

# Where `boot` could not write, the former generation is the current one all the same.
start() {
	! under_trial || ! of_this_boot || count
	become "" ""
}

# [SLOT PROGRAM]: of a pod.
become() {
	current=$(readlink "$dir/current")
	! under_trial || of_this_boot || current=$former
	[ -s "$dir/$current/arguments" ] || { echo "there is no current generation of the kubelet" >&2; exit 1; }
	kubelet=${2:-$dir/$current/kubelet} slot=$1
	set -- "--config=$dir/$current/config.json"
	is_given_certificates || set -- "$@" "--bootstrap-kubeconfig=$bootstrap"
	while IFS= read -r argument || [ -n "$argument" ]; do
		case "$argument" in --lock-file* | --exit-on-lock-contention*) ;; *) set -- "$@" "$argument" ;; esac
	done <"$dir/$current/arguments"
	! shares || set -- "$@" "--lock-file=$slot_lock"
	[ -z "$slot" ] || set -- "$@" "--healthz-bind-address=127.0.0.1" "--healthz-port=$hosted_port"
	exec "$kubelet" "$@"
}

# Whether a pod's kubelet may be in force in this boot, or may have been.
shares() { [ -e "$slot_lock" ] || [ "$(value hosted boot)" = "$(boot_id)" ]; }

# PID. Not by /proc/locks: that has everybody's, and takes long to read where some pod has very many.
lock_of() {
	for descriptor in "/proc/$1/fd/"*; do
		# shellcheck disable=SC3013 # every sh of a host has it
		[ "$slot_lock" -ef "$descriptor" ] || continue
		case "$(cat "/proc/$1/fdinfo/${descriptor##*/}" 2>/dev/null)" in *lock:*) echo held ;; *pos:*) echo awaited ;; esac
		return 0
	done
}

# One that waits for the lock hears no TERM, and the machine would wait for it when it is shut down.
stop() {
	is_number "$1" && grep -qs -- "--lock-file=$slot_lock" "/proc/$1/cmdline" || return 0
	case "$(lock_of "$1")" in
	held) return 0 ;;
	awaited) ;;
	*) timeout 3 grep -qE -- "-> FLOCK +ADVISORY +WRITE $1 " /proc/locks || return 0 ;; # for a former one
	esac
	kill -KILL "$1"
}

# A trial that nobody carries out, for whatever reason. In a subshell: the kubelet must not inherit the lock.
count() (
	lock -n || { rm -f "$run/kubelet-starts"; exit; }
	starts=$(cat "$run/kubelet-starts" 2>/dev/null)
	is_number "$starts" || starts=0
	echo $((starts + 1)) >"$run/kubelet-starts"
	[ "$starts" -ge 5 ] && revert "the kubelet was started $starts times, and nobody looked after it" || exit
	same_runtime || unit restart --no-block containerd
)

# Where the CA's key is, an agent issues the kubelet a new certificate when its own has expired. Elsewhere the kubelet
# requests one with its bootstrap kubeconfig; with no certificate, or a damaged kubeconfig, it would exit without that.
is_given_certificates() {
	[ -e "$ca_key" ] || return 1
	for file in "$signers"*; do [ -e "$file" ] || return 1; done
	grep -qs client-certificate-data "$kubeconfig" ||
		{ grep -qs client-certificate "$kubeconfig" && [ -s "$certificate" ]; }
}

switch() {
	! under_trial || { echo "$order is under trial" >&2; return 1; }
	! hosted || { echo "the kubelet of a pod runs with the current one: end it first, by \`$0 aside\`" >&2; return 1; }
	is_complete "$1" || { echo "the generation $1 is not complete" >&2; return 1; }
	former=$(readlink "$dir/current") || former=$1
	[ "$former" = "$1" ] || point previous "$former" || return 1
	point current "$1"
}

# Whoever can open the file, even for reading, can hold the lock: so only root can.
lock() {
	( umask 077; mkdir -p "$run" && chmod 700 "$run" && : >>"$run/kubelet.lock" && chmod 600 "$run/kubelet.lock" ) ||
		return 1
	exec 9>>"$run/kubelet.lock" && flock "$@" 9
}

need_lock() {
	lock "$@" || { echo "kubelet-slots: nothing was done: there is no lock on $run/kubelet.lock" >&2; return "$no_lock"; }
}

case "${1-} ${2-}${3:+ $3}" in
"carry-out ")
	umask 077 # the kubelet's last words are root's
	{ need_lock && carry_out; } || { status=$?; sleep 5; exit "$status"; } # systemd starts this again at once
	;;
"switch "?*) need_lock -w 20 && switch "$2" ;;
"boot " | "start " | "hosted " | "aside ") "$1" ;;
"start hosted "?*) become hosted "$3" ;;
"stop "?*) stop "$2" ;;
"lock "?*) ! is_number "$2" || lock_of "$2" ;;
*) sed -n 's/^#   //p' "$0" >&2; exit 2 ;;
esac
