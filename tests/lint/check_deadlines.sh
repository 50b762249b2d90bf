#!/bin/sh
# check_deadlines.sh: how long anybody waits stands in the headers of deadlines and in the tables of
# docs/deadlines.md: no wait by a number of its own, each number in a table, each test of a table
# under tests/, and who may wait for ever is listed with a reason.
. "$(dirname "$0")/lib.sh"

page=docs/deadlines.md
headers='daemon/base/deadlines.h client/lib/deadlines.h client/cli/deadlines.h
client/python/src/deadlines.h'
waits='poll|ppoll|epoll_wait|epoll_pwait|usleep|nanosleep|sleep|frame_recv_wait|frame_send_wait'
waits="$waits|time_deadline|kiln_wait|kiln_wait_time|sqlite3_busy_timeout"
waits="$waits|child_dismiss|child_expect_end"
ever='pthread_join\(|pthread_cond_wait\(|wait4\(|waitpid\([a-z>-]+, [a-zA-Z&]+, 0\)'
ever="$ever|epoll_wait\(.*-1\)|, KILN_FOREVER\)|getaddrinfo\(|StreamSynchronize\("
ever="$ever|FUTEX_WAIT|sched_yield|sem_wait\("

# Nobody waits so long: what a trace shows, an age, a share of the work in a turn.
lengths='LANE_SPIN_MOST_US|SAME_SIGNAL_US|TRACE_SHORTEST_NS|TRACE_LONGEST_MS|CALL_LEAST_NS'
lengths="$lengths|RECENT_DESCRIBE_US|RECORD_LEAST_US|NAP_SLACK_NS|TURN_US"

# lines_of REGEX: the lines of daemon/ and client/ that match, FILE:LINE:TEXT, comments left out.
lines_of() {
	sources .c .h | grep -E '^(client|daemon)/' | xargs grep -nE "$1" |
		grep -vE '^[^:]*:[0-9]*:[[:space:]]*(/?\*|//)'
}

{
	# A number as the last argument, of a timer as the last but one; 0 looks.
	number='[1-9][0-9]*u?'
	{
		lines_of "(^|[^a-z_])($waits)\\(" | grep -E "[(,] *$number\\)"
		lines_of 'uv_timer_start\(' | grep -E ", *$number, *[^,]*\\);"
	} | sed 's/^\([^:]*:[0-9]*\):.*/\1: waits by a number of its own; name it in deadlines.h/'
	lines_of '^#define [A-Z_]*_(MS|US|NS|SECONDS)[[:space:]]' |
		grep -vE "^($(printf '%s' "$headers" | tr ' \n' '||')):" |
		grep -vE ' .*[[:space:](](DEADLINE|PAUSE)_|[0-9]e[0-9]|[0-9]\.[0-9]' |
		grep -vwE "define (DAY_[A-Z]+|$lengths)" |
		sed 's/^\([^:]*:[0-9]*\):#define \([A-Z_]*\).*/\1: \2 belongs in deadlines.h/'

	uses=$(lines_of '(DEADLINE|PAUSE)_[A-Z]' | grep -oE '(DEADLINE|PAUSE)_[A-Z_]+')
	for header in $headers; do
		sed -n 's/^#define \([A-Z]*_[A-Z_]*\) .*/\1/p' "$header" | while read -r name; do
			grep -qF "\`$name\`" "$page" || echo "$header:1: $name is in no table of $page"
			[ "$(printf '%s\n' "$uses" | grep -cx "$name")" -gt 1 ] ||
				echo "$header:1: nobody waits $name"
		done
	done
	grep -noE '`(DEADLINE|PAUSE)_[A-Z_]+`' "$page" | tr -d '`' | while IFS=: read -r line name; do
		grep -qw "define $name" $headers || echo "$page:$line: there is no $name"
	done

	# Files that may wait for ever.
	lines_of "$ever" |
		cut -d: -f1 | sort -u | grep -vE '_driver\.h$|/sandbox/' | while read -r file; do
		grep -E '^\| `' "$page" | cut -d'|' -f2 | grep -qF "\`$file\`" ||
			echo "$file:1: somebody waits there for ever, and $page does not say why he may"
	done

	awk -F' *[|] *' '
		/^## /  { on = /What ends/ }
		!/^\|/ { row = 0; next }
		on && ++row > 2 {
			if (NF != 8)
				printf "?:%d:a row has 6 columns, this one %d\n", FNR, NF - 2
			else if ($7 ~ /^no test/)
				next
			else if ($7 !~ /^`[a-z0-9_]+:[^`]+`$/)
				printf "?:%d:names no test, `FILE:NAME`, and does not say why\n", FNR
			else
				print substr($7, 2, length($7) - 2) ":" FNR
		}' "$page" 2>/dev/null | while IFS=: read -r file name line; do
		if [ "$file" = '?' ]; then
			echo "$page:$name: $line"
			continue
		fi
		found=$(find tests -name "$file.c" -o -name "$file.sh" -o -name "$file.py")
		if [ -z "$found" ]; then
			echo "$page:$line: there is no program $file under tests/"
		elif ! grep -qwF -e "$name" $found; then
			echo "$page:$line: $file has no test $name"
		fi
	done
} | finish deadlines
