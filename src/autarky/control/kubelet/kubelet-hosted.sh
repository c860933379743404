#!/bin/sh
# Runs the kubelet of a pod in place of the host's, and ends it when that is to be in force again. Written by autarky.
#   kubelet-hosted INIT   INIT: the first process of the pod's container; POD_UID is set; in the host's mount namespace
# One kubelet holds the lock and is in force, the other one waits for it inside itself. What ends this script, or its
# kubelet, gives the lock to the host's.
set -u
dir="@KUBELETS@"
run="@RUN@"
lock="@LOCK@"
slots="@SLOTS@"
image_path="@IMAGE_PATH@" # of the kubelet in its image
host_port=@HOST_PORT@     # of the host's kubelet: its health
port=@PORT@
most_exits=@MOST_EXITS@ # on trial
limit=@LIMIT@           # seconds for a proof
ceiling=@CEILING@       # the same, where the clock is stopped
wait_seconds=@WAIT_SECONDS@ # as long as a verdict stops the clock
beat_seconds=@BEAT_SECONDS@ # between two signs of life
look_seconds=@LOOK_SECONDS@ # between two looks at what seldom fails
hung_seconds=@HUNG_SECONDS@ # without an answer
start_seconds=@START_SECONDS@ # for a kubelet of the host's that has just been started
forget_seconds=@FORGET_SECONDS@ # after which an exit does not count any more
pod=${POD_UID-} init=${1-} exits=0 child="" held="" state="" why="" told=0 looked=0 asked=0 well=0 two=""
watched="" host_since=0 host_well=0 host_patience=0 behind="" absent=0
most_absent=10 # looks at which the host's kubelet did not run, since it was at the lock last

# --- files, processes and systemd ---

# What follows KEY in FILE; of several the first.
value() {
	[ -f "$dir/$1" ] || return 1
	while read -r key rest; do
		[ "$key" != "$2" ] || { printf '%s\n' "$rest"; return 0; }
	done <"$dir/$1"
	return 1
}

is_number() { case "$1" in "" | *[!0-9]* | 0?* | ??????????*) return 1 ;; esac; }
# Seconds of the machine's uptime, as $now.
clock() { read -r now _ </proc/uptime && now=${now%%.*}; }
unit() { timeout 60 systemctl "$@"; }
# A TERM is heard at once.
pause() { sleep "$1" 9>&- & wait $!; }

# STATE [WHY]
tell() {
	clock
	state=$1 why=${2-} told=$now
	printf 'boot %s\npod %s\ntry %s\nversion %s\nstate %s\nuptime %s\nbehind %s\nwhy %s\n' \
		"$boot" "$pod" "$try" "$version" "$state" "$told" "$behind" "$why" >"$dir/.hosted" &&
		mv -T "$dir/.hosted" "$dir/hosted"
}

# Of a pod that outlives a restart of the machine, the number may be the same in both boots.
is_judged() {
	[ "$(value hosted-verdict boot)" = "$boot" ] && [ "$(value hosted-verdict pod)" = "$pod" ] &&
		[ "$(value hosted-verdict try)" = "$try" ]
}

# What the node's agent says of this try. What allows a start, or stops the clock, counts only while it is fresh.
verdict() {
	is_judged || return 0
	said=$(value hosted-verdict verdict) at=$(value hosted-verdict uptime)
	clock
	case "$said" in may | wait) is_number "$at" && [ $((now - at)) -lt "$wait_seconds" ] || return 0 ;; esac
	echo "$said"
}

# Whether the host's generation is left alone: during its trial the host's kubelet is the one to be proven.
is_free() { [ ! -e "$dir/ask" ] && [ ! -e "$dir/trial" ]; }

host() { host_pid=$(unit show kubelet --property=MainPID --value) && is_number "$host_pid" && [ "$host_pid" != 0 ]; }
has_ended() { [ -z "$child" ] || ! kill -0 "$child" 2>/dev/null; }
is_stopped() { grep -qs '^State:.*[Tt] (' "/proc/$1/status"; }

# shellcheck disable=SC2016 # for bash, which has /dev/tcp
answers() {
	timeout 5 bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$0" && printf "GET /healthz HTTP/1.0\r\n\r\n" >&3 && cat <&3' "$1" \
		2>/dev/null 9>&- | head -n 1 | grep -q ' 200 '
}

# As in kubelet-slots: a user's arguments may close the port, or move it to another address: unknown is no failure.
host_answers() {
	arguments="$dir/current/arguments"
	given=$(sed -n 's/^--healthz-port=//p' "$arguments" | tail -n 1)
	[ "$given" = 0 ] || grep -qs '^--healthz-bind-address=' "$arguments" || answers "${given:-$host_port}"
}

# --- the lock ---

# Mounted on itself: it cannot be removed or replaced then, and both wait for the same.
make_lock() {
	( umask 077; mkdir -p "$run" && chmod 700 "$run" && : >>"$lock" && chmod 600 "$lock" ) || return 1
	grep -q " $lock " /proc/self/mounts || mount --bind "$lock" "$lock"
}

holds() { [ "$("$slots" lock "$1" 9>&-)" = held ]; }
awaits() { [ "$("$slots" lock "$1" 9>&-)" = awaited ]; }
comes_to_lock() { [ -n "$("$slots" lock "$1" 9>&-)" ]; }

# Somebody else has the lock, or it was taken away in spite of its mount: another file is the lock, and the host's
# kubelet has it. Nobody holds on to the former one but a stranger.
renew_lock() {
	echo "the lock $lock is replaced: $1" >&2
	trap '' TERM INT # the host's kubelet would be stopped, and nobody there to start it
	end_child
	while grep -q " $lock " /proc/self/mounts; do umount -l "$lock" || break; done # somebody has it open
	rm -f "$lock"
	make_lock
	unit restart kubelet
	trap ends TERM INT
}

# The host's kubelet waits for nobody's lock where it has been started before there was one.
host_has_lock() {
	make_lock || return 1
	if host_holds; then return 0; fi
	is_coming || unit restart kubelet
	clock
	end=$((now + 20)) most=$((now + start_seconds))
	until host_holds; do
		clock
		if host_is_gone || ! { [ "$now" -lt "$end" ] || { [ "$now" -lt "$most" ] && is_coming; }; }; then return 1; fi
		beat
		pause 0.2
	done
}

host_holds() { host && holds "$host_pid" && absent=0 && behind=no; }

# It exits whenever it is started: nobody has the lock, and without the pod's the node would have no kubelet at all. If
# it comes after all, it waits.
host_is_gone() {
	[ "$host_pid" != 0 ] || absent=$((absent + 1))
	[ "$absent" -ge "$most_absent" ] && behind=gone
}

# Whether it is to come to the lock, and has not opened it yet, nor a former one: on a slow machine that takes long.
is_coming() {
	grep -qs -- "--lock-file=$lock" "/proc/$host_pid/cmdline" || return 1
	for one in "/proc/$host_pid/fd/"*; do
		case "$(readlink "$one")" in "$lock" | "$lock (deleted)" | / | "/ (deleted)") return 1 ;; esac
	done
}

# --- its kubelet ---

# A sign of life, at times.
beat() { [ $((now - told)) -lt "$beat_seconds" ] || tell "$state" "$why"; }

# Between two looks: SECONDS.
rest() {
	pause "$1"
	clock
	beat
	[ $((now - looked)) -lt "$look_seconds" ] || { looked=$now; watch_host; }
}

await() {
	tell waiting "$why"
	until is_free && [ "$(verdict)" = may ]; do rest 1; done
}

# 1: it ended, or does not start. 2: it may not go on, and has done nothing wrong. So do the next two; while the host's
# does not wait behind it, it goes on whatever is said of it, unless it hangs.
take_over() {
	if ! host_has_lock && ! host_is_gone; then
		renew_lock "the host's kubelet does not get it"
		host_has_lock || host_is_gone || { why="the host's kubelet does not get the lock $lock"; return 1; }
	fi
	[ "$(verdict)" = may ] || return 2 # that took long, and it may not any more
	"$slots" start hosted "/proc/$init/root$image_path" 9>&- &
	child=$!
	echo "$child" >"$run/kubelet-hosted"
	tell proving
	wait_until 30 comes_to_lock "$child" || { why="it did not come to wait for the lock"; return 1; }
	is_free || return 2
	clock
	since=$now
	unit --no-block restart kubelet
	wait_until 10 holds "$child" || has_ended || unit kill --signal=KILL kubelet # one that was stopped, or hangs
	wait_until 20 holds "$child" || { why="the host's kubelet did not give up the lock"; return 1; }
	held=$(held_by "$child")
}

# SECONDS COMMAND...; 1 where its kubelet has ended before.
wait_until() {
	clock
	end=$((now + $1))
	shift
	until "$@"; do
		clock
		if has_ended || [ "$now" -ge "$end" ]; then return 1; fi
		beat
		pause 0.1
	done
}

held_by() { for one in "/proc/$1/fd/"*; do if is_lock "$one"; then echo "$one"; fi; done; }
# shellcheck disable=SC3013 # every sh of a host has it
is_lock() { [ "$lock" -ef "$1" ]; }

prove() {
	clock
	last=$since until=$((since + limit)) most=$((since + ceiling)) well=$now asked=0
	while :; do
		if has_ended; then why="it has exited"; return 1; fi
		if steps_aside; then return 2; fi
		clock
		if hangs; then return 1; fi
		case "$(verdict)" in
		good) tell proven; return ;;
		leave) if host_waits; then return 2; fi ;;
		wait) until=$((until + now - last)) ;;
		esac
		if { [ "$now" -ge "$most" ] || [ "$now" -ge "$until" ]; } && host_waits; then
			[ "$now" -lt "$most" ] || return 2 # the API is away: that says nothing of this kubelet
			break
		fi
		last=$now
		rest 1
	done
	is_heard || return 2 # nobody has judged it: that says nothing of it, either
	why=$(value hosted-verdict why)
	why="it was not proven in time${why:+: $why}" exits=$most_exits
	return 1
}

# Whether the agent has said of late what is missing.
is_heard() {
	is_judged && at=$(value hosted-verdict uptime) && is_number "$at" && [ $((now - at)) -lt "$wait_seconds" ] || return 1
	case "$(value hosted-verdict verdict)" in wait | unproven) ;; *) return 1 ;; esac
}

look_after() {
	while :; do
		if has_ended; then why="it has exited"; return 1; fi
		if steps_aside; then return 2; fi
		if [ "$(verdict)" = leave ]; then
			if host_waits; then return 2; fi
			[ -n "$why" ] || tell "$state" "the host's kubelet does not wait for the lock"
		fi
		is_lock "$held" || { renew_lock "it was replaced"; return 2; }
		[ -z "$two" ] || { why=$two; return 1; }
		clock
		if hangs; then return 1; fi
		[ $((now - since)) -lt "$forget_seconds" ] || exits=0
		rest 2
	done
}

# Where it does not, one that may not be in force any more stays: no kubelet would be worse.
host_waits() { host && awaits "$host_pid"; }

# For a change of the host's generation, which waits as well where nobody would be in force then.
steps_aside() { ! is_free && host_waits; }

# One that has not answered for too long is ended, with no time for that, which it would not use.
hangs() {
	if [ $((now - asked)) -ge "$look_seconds" ]; then
		asked=$now
		if answers "$port"; then well=$now; fi
	fi
	[ $((now - well)) -ge "$hung_seconds" ] || return 1
	why="it has not answered for $hung_seconds s"
	kill -KILL "$child"
}

# A kubelet that was stopped, hangs, or waits for the lock does not end by itself.
end_child() {
	if ! has_ended; then
		kill "$child"
		if awaits "$child"; then kill -KILL "$child"; fi
		wait_until 5 false || has_ended || kill -KILL "$child"
		wait "$child"
	fi
	child="" held="" two=""
	rm -f "$run/kubelet-hosted"
}

# The host's kubelet can be relied on: one that somebody has stopped is started; while the pod's is in force it waits for
# the lock, and else it has it, and answers. One that has just been started has more time for that.
watch_host() {
	host || { [ "$host_pid" != 0 ] || behind_it gone; start_host; return 0; }
	[ "$host_pid" = "$watched" ] || watched=$host_pid host_since=$now host_well=$now host_patience=$start_seconds
	case "$("$slots" lock "$host_pid" 9>&-)" in
	awaited) absent=0 && behind_it yes ;;
	held) absent=0 && behind_it no ;;
	*) # one that has come back may be about to exit once more
		if [ "$behind" != gone ] || [ $((now - host_since)) -ge "$start_seconds" ]; then absent=0 && behind_it no; fi
		;;
	esac
	if is_stopped "$host_pid"; then unit kill --signal=KILL kubelet; fi
	if has_ended; then watch_in_force; else watch_waiting; fi
}

behind_it() { [ "$behind" = "$1" ] || { behind=$1 && tell "$state" "$why"; }; }

# systemd does so itself with one that has ended.
start_host() { case "$(unit is-active kubelet)" in inactive | failed) unit --no-block start kubelet ;; esac; }

watch_in_force() {
	if ! is_free || host_answers; then host_well=$now host_patience=$hung_seconds; fi
	[ "$behind" != yes ] || host_patience=$hung_seconds
	[ $((now - host_well)) -ge "$host_patience" ] || return 0
	host_well=$now
	if [ "$behind" = yes ]; then renew_lock "somebody else has it"; else unit kill --signal=KILL kubelet; fi
}

watch_waiting() {
	host_well=$now
	if [ "$behind" = yes ] || [ $((now - host_since)) -lt "$start_seconds" ]; then return 0; fi
	two="the host's kubelet does not wait for the lock"
}

# An error, of klog or of the command line, as the runtime has it in the log of its pod.
last_words() {
	words=$(cat /var/log/pods/*_"$pod"/kubelet/*.log 2>/dev/null | cut -d ' ' -f 4- | tail -n 60 |
		grep -E '^[EF][0-9]{4} |\berr=|^Error' | tail -n 1 | tr -d '\0' | cut -c 1-1500)
	printf '%s' "${words:+: $words}"
}

# --- all of it ---

run_it() {
	await
	take_over && prove && look_after
	ended=$?
	end_child 2>/dev/null
	try=$((try + 1))
	if [ "$ended" != 1 ] || ! is_free; then why="" && return; fi # it may have been set aside for a trial
	exits=$((exits + 1))
	echo "kubelet-hosted: $why" >&2
	# Where the host's does not start either, one that comes up now and then is better than none.
	[ "$exits" -lt "$most_exits" ] || [ "$absent" -ge "$most_absent" ] || give_up "$why$(last_words)"
}

# It has had its turn, and is not tried again: another pod is.
give_up() {
	try=$((try - 1))
	tell away "$1"
	while :; do rest 1; done
}

ends() {
	end_child 2>/dev/null
	rm -f "$dir/hosted"
	start_host
	exit 0
}

umask 077
read -r boot </proc/sys/kernel/random/boot_id
version=$("/proc/$init/root$image_path" --version) || exit 1
version=${version##* }
clock
try=$now # no verdict of a supervisor before this one is for it
mkdir -p "$run" && exec 9>>"$run/kubelet-hosted.lock" || exit 1
until flock -n 9; do pause 1; done # another pod of the node is about to end
trap ends TERM INT
"$slots" aside 9>&- # the kubelet of one that was killed
while :; do run_it; done
