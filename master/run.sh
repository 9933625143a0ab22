#!/bin/sh
# master/run.sh BUILD - `make run`: a server to try things on.
#
# Starts BUILD/holdfastd in the foreground with a data directory of its own
# below BUILD/run, and once that says it is ready (its log line, no waiting
# for a time), creates the tenant demo and prints lines to copy.  TERM and INT
# (Ctrl-C) stop the server; this script ends with its status.
set -eu
B=$(cd "$1" && pwd)
run=$B/run
listen=${LISTEN:-127.0.0.1:7480}

mkdir -p "$run/data"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
sock=$run/holdfast.sock
[ "$(printf %s "$sock" | wc -c)" -lt 100 ] || sock=$tmp/holdfast.sock	# a socket's name must be short
mkfifo "$tmp/log"

ready() {	# ready ADDRESS
	"$B/holdfastctl" -s "$sock" tenant show demo >/dev/null 2>&1 ||
	"$B/holdfastctl" -s "$sock" tenant add demo --public write || {
		echo "run: could not create the tenant demo" >&2
		kill -TERM "$pid"
		return
	}
	u=http://$1/demo
	cat <<E

holdfast answers on http://$1/ and keeps its data in $run/data
Everybody may write to the tenant demo.  In another terminal:

    # store a document; the answer comes when it is on disk
    curl -i -X PUT -H 'Content-Type: text/plain' --data-binary 'hello, disk' $u/notes/first.txt

    # read it
    curl -i $u/notes/first.txt

    # create only if absent: 201 the first time, 412 from then on
    curl -i -X PUT -H 'If-None-Match: *' --data-binary '{"n":1}' $u/notes/once.json

    # replace only the version that you saw: 204, and 412 if somebody was faster
    etag=\$(curl -sI $u/notes/first.txt | tr -d '\r' | sed -n 's/^ETag: //p')
    curl -i -X PUT -H "If-Match: \$etag" --data-binary 'hello again' $u/notes/first.txt

    # remove it
    curl -i -X DELETE $u/notes/first.txt

    # what the administrator sees
    $B/holdfastctl -s $sock tenant list

Ctrl-C stops the server; the data stays (make distclean removes it).

E
}

"$B/holdfastd" -d -f /dev/null -o "data-dir=$run/data" -o "listen=$listen" \
    -o "control-socket=$sock" -o "pid-file=$run/holdfastd.pid" 2>"$tmp/log" &
pid=$!

# A reader of its own, deaf to Ctrl-C, so that the server's last lines are shown too.
(
	trap '' INT TERM HUP
	said=no
	while IFS= read -r line; do
		printf '%s\n' "$line" >&2
		case $said:$line in
		no:*" ready"*)
			said=yes
			# the address as the server names it: port 0 is any free one
			addr=$(printf '%s\n' "$line" | grep -oE '(\[[0-9a-fA-F:.]+\]|[0-9]+(\.[0-9]+){3}):[0-9]+' | head -n 1)
			ready "${addr:-$listen}" ;;
		esac
	done <"$tmp/log"
) &
reader=$!

trap 'kill -TERM "$pid" 2>/dev/null || :' INT TERM HUP
while :; do
	status=0
	wait "$pid" || status=$?
	kill -0 "$pid" 2>/dev/null || break	# else it was a signal that ended the wait
done
wait "$reader" || :
exit "$status"
