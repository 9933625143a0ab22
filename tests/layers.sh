#!/bin/sh
# tests/layers.sh SRCDIR BUILD - the architecture, checked (README.md, folder map).
#
# By what files include and by what objects refer to:
#	shm/	knows nothing above it
#	store/	knows shm/
#	worker/	knows shm/, and of store/ nothing but read.h
#	master/	knows shm/; it starts the others through shm/boot.h.  The tool
#		(ctl*.c) is a program of its own, which opens a store offline.
# Includes have no circle, a .c file starts with config.h, and each file says
# in its first lines which process runs it.
set -eu
export LC_ALL=C
src=$1 B=$(cd "$2" && pwd)
cd "$src"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
: >"$tmp/bad"

bad() {
	echo "layers: $*" >>"$tmp/bad"
}

# file, included file: one pair a line
for f in shm/*.[ch] store/*.[ch] worker/*.[ch] master/*.[ch]; do
	[ -f "$f" ] || continue
	sed -n 's/^[ 	]*#[ 	]*include[ 	]*"\([^"]*\)".*/\1/p' "$f" | sed "s|^|$f |"
done >"$tmp/includes"

while read -r f inc; do
	case $f:$inc in
	*.c:config.h)				;;
	shm/*:shm/*)				;;
	store/*:shm/* | store/*:store/*)	;;
	worker/*:shm/* | worker/*:worker/*)	;;
	worker/*:store/read.h)			;;
	master/*:shm/* | master/*:master/*)	;;
	master/ctl*:store/*)			;;
	*) bad "$f must not include $inc" ;;
	esac
	[ "$inc" = config.h ] || [ -f "$inc" ] || bad "$f includes $inc, which is not here"
done <"$tmp/includes"

grep -v ' config\.h$' "$tmp/includes" | tsort >/dev/null 2>"$tmp/loops" ||
	bad "includes go in a circle: $(tr '\n' ' ' <"$tmp/loops")"

for f in shm/*.c store/*.c worker/*.c master/*.c; do
	[ -f "$f" ] || continue
	first=$(grep -m1 '^#[ 	]*include' "$f" || :)
	case $first in
	'#include "config.h"'*)	;;
	*) bad "$f does not include config.h first" ;;
	esac
done
for f in shm/*.[ch] store/*.[ch] worker/*.[ch] master/*.[ch]; do
	[ -f "$f" ] || continue
	head -n 12 "$f" | grep -q 'Runs in:' || bad "$f does not say 'Runs in:' in its first lines"
done

# symbol, object that defines it / refers to it
objects=$(cd "$B/obj" && find shm store worker master -name '*.o' 2>/dev/null | sort)
[ -n "$objects" ] || bad "no objects in $B/obj"
for f in shm/*.c store/*.c worker/*.c master/*.c; do
	[ ! -f "$f" ] || [ -f "$B/obj/${f%.c}.o" ] || bad "$f is in no list of Makefile.in"
done
for o in $objects; do
	nm -g --defined-only "$B/obj/$o" | awk -v o="$o" 'NF == 3 { print $3, o }' >>"$tmp/defs"
	nm -u "$B/obj/$o" | awk -v o="$o" '$1 ~ /^[Uw]$/ { print $2, o }' >>"$tmp/refs"
done
sort "$tmp/defs" >"$tmp/d"
sort "$tmp/refs" >"$tmp/r"
join "$tmp/r" "$tmp/d" | while read -r sym user owner; do
	case $user:$owner in
	shm/*:shm/*)						;;
	store/*:shm/* | store/*:store/*)			;;
	worker/*:shm/* | worker/*:worker/*)			;;
	worker/*:store/read*)					;;
	master/*:shm/* | master/*:master/*)			;;
	master/ctl*:store/*)					;;
	master/supervise.o:*)
		# shm/boot.h declares where a forked child goes on
		case $sym in
		worker_main | committer_main)			;;
		*) bad "$user uses $sym of $owner" ;;
		esac ;;
	*) bad "$user uses $sym of $owner" ;;
	esac
done

if [ -s "$tmp/bad" ]; then
	cat "$tmp/bad" >&2
	exit 1
fi
echo "layers: $(wc -l <"$tmp/includes") includes and $(wc -l <"$tmp/r") references keep to the architecture"
