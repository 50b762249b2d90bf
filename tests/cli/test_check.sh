#!/bin/sh
# test_check.sh: run --check: a daemon of its own that checks every access, the verdict for
# operators and for kernel files, and that nothing is left of it.
. "$(dirname "$0")/lib.sh"
unset KILN_SOCKET
export TMPDIR="$DIR" KILN_DAEMON="$KILND"

gone() {
	for left in "$DIR"/kiln-check-*; do
		[ ! -e "$left" ] || fails "left behind: $left"
	done
}

# An operator of every family, in an order of threads that nobody expects.
clean() {
	json 'j["checked_launches"] == 2 and j["checked_blocks"] >= 2 and j["checked_accesses"] > 100
		and j["thread_order"] == "shuffled" and j["verified"] > 0' \
		"$KILN" run "$@" --check --order shuffled
	gone
}
clean permute --shape 60x100 --perm 1,0
clean softmax --shape 7x1023 --dtype f16
clean softmax --shape 7x90x33 --axis 1
clean masked_softmax --shape 4x6x100 --kind causal
clean layer_norm --shape 5x600 --with gamma,mean,rstd
clean layer_norm_backward --shape 40x128 --with gamma,dx,dgamma
clean gather --shape 3x20x30
clean giou --shape 500x4
clean giou_loss --shape 500x4
# Blocks that wait for one another, which device cpu with one processor does not have.
[ "$(nproc)" -lt 2 ] || clean cumsum --shape 1024x8 --axis 0 --choice 'chain 8x32x16'

verdict() {
	"$KILN" "$@" | sed -n 's/[0-9][0-9]*/N/g; s/^check  *//p'
}
prints 0 verdict run softmax --shape 4x64 --check <<'END'
no bad access among N of N blocks and N launches, threads in natural order
END
prints 0 verdict run permute --shape 4x64 --perm 0,1 --check --order reversed <<'END'
no kernel ran, so there was nothing to check
END

# A kernel that goes one too far; the line before it is not blamed.
cat >"$DIR/scale.cu" <<'END'
__global__ void scale(const float *x, float *y, float a, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	float value = a;
	if (i <= n)
		y[i] = value * x[i];
}
END
scale() {
	"$KILN" run raw "$DIR/scale.cu" --entry scale --grid 4 --block 256 --random f32:1000 \
		--out "$DIR/y.npy:f32:1000" --scalar f32:2 --check "$@"
}
finding() {
	scale "$@" 2>"$DIR/finding"
	status=$?
	sed 's/: /:\n/g' "$DIR/finding"
	return $status
}
prints 1 finding --scalar i32:1000 <<'END'
kiln:
run raw:
kernel scale of DIR/scale.cu:
DIR/scale.cu:6:
block (3,0,0), thread (232,0,0):
reads 4 bytes beyond the end of argument 0, at byte 4000 of 4000 (kernel scale)
END
[ ! -e "$DIR/y.npy" ] || fails "a failed kernel left a result"
json 'j["checked_launches"] == 1 and j["checked_blocks"] == 4
	and j["checked_accesses"] == 2 * 1000' \
	scale --scalar i32:999
gone

# One that does not end: the deadline is the one that was asked for.
printf '%s\n' '__global__ void endless(volatile int *x) { while (!*x) {} }' >"$DIR/endless.cu"
# Compiled before: a busy machine takes longer for that than the deadline.
"$KILN" run raw "$DIR/endless.cu" --entry endless --grid 1 --block 1 --random i32:1 \
	--check >"$DIR/out" ||
	fails "a kernel that ends: $(cat "$DIR/out")"
# Where a machine stands still even the rest may take longer: it has more the next time.
for limit in 2s 30s; do
	"$KILN" run raw "$DIR/endless.cu" --entry endless --grid 1 --block 1 \
		--out "$DIR/y.npy:i32:1" --timeout $limit --check 2>"$DIR/finding"
	status=$?
	! grep -q 'nothing completed on cpu' "$DIR/finding" || break
done
endless() {
	sed 's/[:,;] /&\n/g' "$DIR/finding"
	return $status
}
prints 1 endless <<'END'
kiln:
run raw:
kernel endless of DIR/endless.cu:
nothing completed on cpu for TIME,
the deadline of the call that ran;
its device process was ended
END
gone

# Without addr2line there is no line, but all the rest.
mkdir "$DIR/tools"
for tool in g++ as ld sh rm sed; do
	ln -s "$(command -v $tool)" "$DIR/tools/$tool"
done
without_lines() {
	PATH="$DIR/tools" finding "$@"
}
prints 1 without_lines --scalar i32:1000 <<'END'
kiln:
run raw:
kernel scale of DIR/scale.cu:
no line is known, for that needs addr2line in PATH:
block (3,0,0), thread (232,0,0):
reads 4 bytes beyond the end of argument 0, at byte 4000 of 4000 (kernel scale)
END

# Several commands at once are in nobody's way; one that is killed leaves nothing.
scale --scalar i32:999 >"$DIR/out" &
first=$!
scale --scalar i32:999 --order reversed >"$DIR/out2" &
second=$!
wait $first || fails "the first of two"
wait $second || fails "the second of two"
"$KILN" run layer_norm --shape 400x2000 --time 1000 --check >"$DIR/out" 2>&1 &
killed=$!
tries=0
until [ -S "$(echo "$DIR"/kiln-check-*/sock)" ] || [ $tries -gt 2000 ]; do
	tries=$((tries + 1))
	sleep 0.05
done
kill -KILL $killed
wait $killed 2>/dev/null
tries=0
while [ -e "$(echo "$DIR"/kiln-check-*)" ] && [ $tries -lt 2000 ]; do
	tries=$((tries + 1))
	sleep 0.1
done
gone

# Some combinations are refused.
prints 2 "$KILN" --device cuda:0 run permute --shape 4x5 --perm 1,0 --check <<'END'
! kiln: --check is for device cpu, not cuda:0; see 'Checking a kernel' in docs/raw-kernels.md
END
prints 2 "$KILN" --socket /tmp/x run permute --shape 4x5 --perm 1,0 --check <<'END'
! kiln: --check starts a daemon of its own: leave --socket /tmp/x out
END
prints 2 "$KILN" run permute --shape 4x5 --perm 1,0 --order reversed <<'END'
! kiln: --order reversed is for --check
END
prints 2 "$KILN" run permute --shape 4x5 --perm 1,0 --check --order odd <<'END'
! kiln: --order 'odd': there are natural, reversed and shuffled
END
PATH=/nonexistent "$KILN" run permute --shape 4x5 --perm 1,0 --check >"$DIR/out" 2>&1 &&
	fails "a kernel without a compiler"
gone
KILN_DAEMON="$DIR/none" prints 1 "$KILN" run permute --shape 4x5 --perm 1,0 --check <<'END'
! kiln: --check: DIR/none cannot be started: No such file or directory
END
KILN_DAEMON=/bin/false prints 1 "$KILN" run permute --shape 4x5 --perm 1,0 --check <<'END'
! kiln: --check: the daemon that checks does not answer: it said nothing
END
gone
finish
