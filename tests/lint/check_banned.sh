#!/bin/sh
# check_banned.sh: functions and words that have no place here, each with its reason.  Comments and
# strings are taken out before looking.
. "$(dirname "$0")/lib.sh"

# FILE:LINE:code of C files, without comments and the insides of strings.
code() {
	sources .c .h .cuh | xargs awk '
		FNR == 1 { comment = 0 }
		{
			text = $0
			out = ""
			while (text != "") {
				if (comment) {
					at = index(text, "*/")
					if (!at) break
					text = substr(text, at + 2)
					comment = 0
				} else if (match(text, /"([^"\\]|\\.)*"|\/\*|\/\//)) {
					token = substr(text, RSTART, 2)
					out = out substr(text, 1, RSTART - 1)
					rest = substr(text, RSTART + RLENGTH)
					if (token == "//") break
					if (token == "/*") comment = 1
					else out = out "\"\""
					text = rest
				} else {
					out = out text
					break
				}
			}
			if (out != "") print FILENAME ":" FNR ":" out
		}'
}

listing=$(mktemp) || exit 1
trap 'rm -f "$listing"' EXIT
code >"$listing"

# ban PATHS WORDS REASON: calls of these in files whose path fits
ban() {
	grep -E "^($1)[^:]*:[0-9]+:(.*[^A-Za-z0-9_])?($2)[[:space:]]*\\(" "$listing" |
		sed "s|^\\([^:]*:[0-9]*\\):.*|\\1: $3|"
}

{
	ban '' 'strcpy|strcat|sprintf|vsprintf|gets|stpcpy' \
		'a function that writes without a bound: use snprintf or memcpy'
	ban '' 'strtok|atoi|atol|atof|tmpnam|mktemp|alloca|asctime|ctime|rand|srand' \
		'a function that hides errors or state: strtol, strcspn, mkdtemp, ... do not'
	ban 'client/|daemon/|include/|examples/' 'system|popen|vfork' \
		'no shell and no bare process: use posix_spawn'
	# autostart.c forks to lose its parent, and then executes.
	ban 'client/(cli|wire|lib/([b-z]|a[a-tv-z]))|daemon/|include/|examples/' 'fork' \
		'CUDA does not survive a fork: start processes with posix_spawn'
	ban '' 'cuMemAllocManaged|cudaMallocManaged|cuMemPrefetchAsync|cudaMemPrefetchAsync' \
		'managed memory cannot be shared between processes'
	ban 'daemon/|client/' 'cudaMalloc|cudaFree|cudaMemcpy|cudaLaunchKernel' \
		'the driver API only, by dlopen'
	# base/memory.c is the one place that gives up; a child and a test may end with _exit.
	ban 'daemon/(plan|compile|cache|seal|exec)/|daemon/[a-z_]*\.|client/|include/' \
		'abort|exit|quick_exit' \
		'nothing aborts or exits but main returns (util_alloc is for small things)'
	ban 'client/(client|buffer|call|reply|connect|error|status|cuda_ipc|fork)' 'signal|sigaction' \
		'libkiln installs no signal handlers'
	ban 'daemon/[a-z_]*\.' 'sleep|usleep|nanosleep|system' \
		'the broker thread blocks for nothing: use a timer'
	grep -E '^daemon/[a-z_]*\.' "$listing" | grep -E '\<wait(id|pid|3|4)?\(' | grep -v WNOHANG |
		sed 's|^\([^:]*:[0-9]*\):.*|\1: the broker thread waits for no child: WNOHANG|'
	# util_wall_s() is the one look of the daemon's at the clock that may jump.
	grep -vE '^daemon/base/memory\.c:' "$listing" | grep -E '^(daemon|client|include)/' |
		grep -E '\<(CLOCK_REALTIME|gettimeofday)\>|^daemon/.*\<time\(NULL\)' |
		sed 's|^\([^:]*:[0-9]*\):.*|\1: a clock that may jump: util_now_us() is for waits, |' |
		sed 's|$|util_wall_s() for what is kept|'
	grep -E '__managed__|#[[:space:]]*pragma[[:space:]]+GCC[[:space:]]+diagnostic' "$listing" |
		sed 's|^\([^:]*:[0-9]*\):.*|\1: managed memory and silenced warnings are not used here|'
	sources .c .h .cuh .S .sh .cmake CMakeLists.txt | grep -v '^tests/lint/check_banned' |
		xargs grep -nE '(TO''DO|FIX''ME|XXX|HACK)([^A-Za-z]|$)' |
		grep -vE 'X{4,}' | sed 's|^\([^:]*:[0-9]*\):.*|\1: unfinished work is not committed|'
} | finish banned
