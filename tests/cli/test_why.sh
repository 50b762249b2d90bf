#!/bin/sh
# test_why.sh: explain --why, explain raw and compile raw; cache ls --failed, show and retry.
. "$(dirname "$0")/lib.sh"
daemon

# Operators: nothing near, a hit, and what differs.
why() {
	"$KILN" explain "$@" --why | sed -n -E -e '/^why /,$p' | sed -E 's/[0-9a-f]{12}/DIGITS/'
}
prints 0 why softmax --shape 64x1000 <<'END'
why            a miss; the cache has no kernel of softmax
END
"$KILN" compile softmax --shape 64x1000 >/dev/null || fails "compile softmax"
prints 0 why softmax --shape 64x1000 <<'END'
why            a hit: the cache has it
END
prints 0 why softmax --shape 64x1004 <<'END'
why            a miss; nearest is kernel DIGITS, the same but for
               COLUMNS of RowShape is 1004 instead of 1000
               X of softmax_rows is List<1004> instead of List<1000>
               Y of softmax_rows is List<1004> instead of List<1000>
END
prints 0 why softmax --shape 64x1000 --target sm_90 <<'END'
why            a miss; nearest is kernel DIGITS, the same but for
               target sm_90 instead of cpu
END
prints 0 why permute --shape 8x9 --perm 0,1 <<'END'
why            no kernel is needed, or there is no compiler for it (kiln status)
END
prints 0 why map 'y[i] = x[i]' --shape x=100 <<'END'
why            a miss; the cache has no kernel of map
END
"$KILN" explain softmax --shape 64x1004 | grep -q '^why ' && fails "why without --why"
json 'j["cached"] == 0 and j["failed"] == 0 and j["near"][0]["distance"] == 3 and
	j["near"][0]["differences"][0] == {"what": "argument",
	"text": "COLUMNS of RowShape is 1004 instead of 1000"}' \
	"$KILN" explain softmax --shape 64x1004

# Kernels of one's own.
cd "$DIR" || exit 1
cat >k.cu <<'END'
#include "n.h"
__global__ void k(float *x) { x[threadIdx.x] = N + M; }
END
echo '#define N 3' >n.h
mine() {
	command=$1
	shift
	"$KILN" "$command" raw k.cu --entry k --include n.h "$@"
}
mine compile --macro M=1 >out || fails "compile raw"
grep -q '^origin  *compiled$' out && grep -q '^object  *[0-9]' out ||
	fails "compile raw: $(cat out)"
json 'j["origin"] == "hit" and len(j["key"]) == 64' mine compile --macro M=1
why_mine() {
	mine explain --why "$@" | sed -n -E -e '/^why /,$p' | sed -E 's/[0-9a-f]{12}/DIGITS/'
}
prints 0 why_mine --macro M=1 <<'END'
why            a hit: the cache has it
END
echo '#define N 4' >n.h
prints 0 why_mine --macro M=2 --option=--use_fast_math <<'END'
why            a miss; nearest is kernel DIGITS, the same but for
               option --use_fast_math added
               macro M=2 instead of 1
               header n.h changed
END
mine compile --macro M=1 >/dev/null || fails "compile raw with another header"
prints 0 why_mine --macro M=2 --option=--use_fast_math <<'END'
why            a miss; nearest is kernel DIGITS, the same but for
               option --use_fast_math added
               macro M=2 instead of 1
also near      DIGITS: option --use_fast_math added; macro M=2 instead of 1; header n.h changed
END
prints 2 "$KILN" explain raw k.cu <<'END'
! kiln: 'kiln explain raw' needs --entry, as --entry 'scale<float>'
END
prints 1 "$KILN" compile raw none.cu --entry k <<'END'
! kiln: compile raw: none.cu cannot be read: No such file or directory
END

# A failure: the same words every time, until it is forgotten.
mine compile >out 2>first
[ $? -eq 1 ] && grep -q '^kiln: compile raw: k.cu:2:' first || fails "no failure: $(cat first)"
mine compile >out 2>second
[ $? -eq 1 ] && cmp -s first second || fails "another failure: $(cat second)"
tail -1 first >note
key=$(sed -n -E 's/^kiln: this failure is remembered; `kiln cache retry ([0-9a-f]{12})` .*/\1/p' \
	note)
[ -n "$key" ] || fails "no note: $(cat note)"
list() {
	"$KILN" cache ls --failed | sed -E -e 's/^[0-9a-f]{12}/DIGITS/' -e 's/  +/ /g'
}
"$KILN" cache ls --failed | grep -q "^$key " || fails "ls --failed does not name $key"
list >out
head -1 out | grep -qx 'KEY OP TARGET STATUS HITS KEPT ERROR' || fails "ls --failed: $(cat out)"
grep -q "^DIGITS raw cpu KILN_ECOMPILE 1 for ever k.cu:2:.*'M' was not declared" out ||
	fails "ls --failed: $(cat out)"
json 'len(j["rows"]) == 1 and j["rows"][0]["status"] == "KILN_ECOMPILE"' "$KILN" cache ls --failed
prints 2 "$KILN" cache ls --failed --sort hits <<'END'
! kiln: --sort and --op go with kernels, not with --failed
END
"$KILN" cache show "$key" --log >out || fails "show of a failure"
grep -qx 'failed         KILN_ECOMPILE' out && grep -q "^error .*k.cu:2:" out &&
	grep -qx 'kept           for ever' out || fails "show: $(cat out)"
# The printed sentence holds the log's first line, with the command before it.
sed '1s/^kiln: compile raw: //' second >printed
sed '1,/^log:$/d' out | sort >shown
sort printed | cmp -s - shown ||
	fails "show --log is not what was printed: $(cat out second)"
"$KILN" cache show "$key" --source | grep -q 'N + M' || fails "show --source"
prints 0 why_mine <<END
why            it does not compile, which is remembered: 'kiln cache show DIGITS --log'
END
mine explain | grep -q '^failed  *KILN_ECOMPILE: k.cu:2:' || fails "explain of a failure"
"$KILN" status | tr -s ' \n' '  ' | grep -q 'failures 1, remembered 1' ||
	fails "status: $("$KILN" status)"
prints 0 "$KILN" cache retry "$key" <<'END'
forgotten 1
END
prints 1 "$KILN" cache retry "$key" <<END
! kiln: cache retry: no failure is remembered under a key that begins with $key
END
prints 2 "$KILN" cache retry <<'END'
! kiln: 'kiln cache retry' needs either a KEY, as 'kiln cache ls --failed' lists them, or --all
END
prints 2 "$KILN" cache retry --all "$key" <<'END'
! kiln: 'kiln cache retry' needs either a KEY, as 'kiln cache ls --failed' lists them, or --all
END
mine compile >/dev/null 2>&1 && fails "it compiles"
json 'j["removed"] == 1' "$KILN" cache retry --all

# A failure that may pass is remembered for a while.
"$KILN" stop >/dev/null || fails "stop"
wait "$DAEMON"
daemon --compile-timeout 300 --test-retry-after 5000
"$KILN" debug hang-compile 1 || fails "debug hang-compile"
mine compile --macro M=9 >out 2>first
[ $? -eq 1 ] && grep -q 'took longer than 300 ms' first || fails "no time-out: $(cat first)"
grep -q '^kiln: this failure is remembered for 5000 s; ' first || fails "no note: $(cat first)"
"$KILN" cache ls --failed >out
grep -qE 'KILN_ETIMEDOUT +0 +83 min ' out || fails "ls --failed: $(cat out)"
finish
