#!/bin/sh
# test_raw.sh: kernels of the user's own from the shell: what they are given and write, how they are
# compiled and timed, and the sentence of each way in which one goes wrong.
. "$(dirname "$0")/lib.sh"

raw() {
	(cd "$DIR" && "$KILN" run raw "$@")
}
wrong() {
	sentence=$1
	shift
	printf '! kiln: %s\n' "$sentence" >"$DIR/sentence"
	prints 2 raw "$@" <"$DIR/sentence"
}

file x.npy '<f4' 6x8 'i'
file xf.npy '<f4' 6x8 'i' fortran
file y.npy '<f4' 6x8 '1000 + i'
mkdir "$DIR/inc"
printf '#define TWICE(v) (2 * (v))\n' >"$DIR/inc/twice.h"
cat >"$DIR/k.cu" <<'CU'
#include <stdint.h>
template <typename T>
__global__ void axpy(const T *x, T *y, T a, int64_t n)
{
	int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
	if (i < n)
		y[i] += a * x[i];
}
__global__ void shared(const float *x, float *y)
{
	extern __shared__ float all[];
	all[threadIdx.x] = x[threadIdx.x];
	__syncthreads();
	y[threadIdx.x] = all[blockDim.x - 1 - threadIdx.x];
}
__global__ void places(int *y)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x;
	int row = blockIdx.y * blockDim.y + threadIdx.y;
	int layer = blockIdx.z * blockDim.z + threadIdx.z;
	y[(layer * gridDim.y * blockDim.y + row) * gridDim.x * blockDim.x + x] =
		100 * layer + 10 * row + x;
}
__global__ void types(double *y, int8_t a, uint16_t b, int32_t c, uint64_t d, float e, double f,
					  bool g)
{
	y[0] = a, y[1] = b, y[2] = c, y[3] = (double)d, y[4] = e, y[5] = f, y[6] = g;
}
__global__ void halves(uint16_t *y, uint16_t a, uint16_t b)
{
	y[0] = a, y[1] = b;
}
__global__ void beyond(float *x)
{
	x[threadIdx.x + 4096] = 1;
}
__global__ void endless(volatile float *x)
{
	while (x[0] != 12345)
		;
}
CU
cat >"$DIR/h.cu" <<'CU'
#include "twice.h"
#include <mine/twice.h>
__global__ void k(float *y)
{
	y[threadIdx.x] = TWICE(FACTOR) + FLAG;
}
CU

# ---- Command lines that are wrong: nothing is asked of a daemon. ----
launch='--grid 1 --block 48'
wrong "'kiln run raw' needs more arguments; usage: kiln run raw FILE.cu; see 'kiln help run raw'"
wrong "'kiln run raw' needs --grid, as --grid 64 or --grid 16x16" k.cu --entry k
wrong "'kiln run raw' needs --block, as --block 64 or --block 16x16" k.cu --entry k --grid 1
# Word splitting of the launch is meant from here on.
# shellcheck disable=SC2086
{
	wrong "'kiln run raw' needs --entry, as --entry 'scale<float>'" k.cu $launch
	for sizes in 0 1x2x3x4 1x0 4294967296 ''; do
		wrong "--grid '$sizes': expected one to three sizes from 1 to 2147483647, as 64 or 16x16" \
			k.cu --entry k --grid "$sizes" --block 1
	done
	wrong "--block '8x': expected non-negative integers separated by 'x' or ','" \
		k.cu --entry k --grid 1 --block 8x
	wrong "--shared '4G': a block has at most 2147483647 bytes" k.cu --entry k $launch --shared 4G
	wrong "-I needs a value: -I FOLDER" k.cu --entry k $launch -I
	wrong "--shape is no option of 'kiln run raw'; see 'kiln help run raw'" k.cu --shape 2x3
	for out in y.npy y.npy:f32 :f32:6; do
		wrong "--out '$out': expected FILE:TYPE:SHAPE, as y.npy:f32:1024x1024" \
			k.cu --entry k $launch --out "$out"
	done
	types='f16 bf16 f32 f64 i8 u8 i16 u16 i32 u32 i64 u64 bool c64 c128 f8e4m3 f8e5m2'
	wrong "--out 'f8': it is no element type; there are $types" \
		k.cu --entry k $launch --out y.npy:f8:6
	wrong "--out '6x': expected non-negative integers separated by 'x' or ','" \
		k.cu --entry k $launch --out y.npy:f32:6x
	wrong "--random 'f32:4294967296x4294967296': more bytes than an address can name" \
		k.cu --entry k $launch --random f32:4294967296x4294967296
	wrong "--random 'f32': expected TYPE:SHAPE, as f32:1024x1024" \
		k.cu --entry k $launch --random f32
	wrong "--out 'y.npy:i8:2': argument 0 goes to y.npy, too" \
		k.cu --entry k $launch --out y.npy:f32:6 --out z.npy:f32:6 --out y.npy:i8:2
	for inout in x.npy =x.npy x.npy=; do
		wrong "--inout '$inout': expected FILE=FILE: where it comes from, and goes to" \
			k.cu --entry k $launch --inout "$inout"
	done
	kinds='where TYPE is that of a real number, of an integer or bool'
	for scalar in 2.5 f8:1 c64:1 f32; do
		wrong "--scalar '$scalar': expected TYPE:VALUE, as f32:2.5, $kinds" \
			k.cu --entry k $launch --scalar "$scalar"
	done
	wrong "--scalar 'f32:x': expected a number after f32:, as 0.125 or 1e-5" \
		k.cu --entry k $launch --scalar f32:x
	wrong "--scalar 'i8:128': expected an integer from -128 to 127 after i8:" \
		k.cu --entry k $launch --scalar i8:128
}
cat >"$DIR/sentence" <<'END'
! kiln: run: 'raw' comes right after 'run', and options after it; see 'kiln help run raw'
END
prints 2 "$KILN" run --json raw <"$DIR/sentence"
prints 1 raw none.cu --entry k --grid 1 --block 1 <<'END'
! kiln: run raw: none.cu cannot be read: No such file or directory
END
prints 1 raw . --entry k --grid 1 --block 1 <<'END'
! kiln: run raw: . cannot be read: Is a directory
END
head -c 16777217 /dev/zero >"$DIR/long.h"
prints 1 raw k.cu --entry k --grid 1 --block 1 --include long.h --json <<'END'
{"error":"KILN_ELIMIT","message":"run raw: long.h has over 16777216 bytes"}
! kiln: run raw: long.h has over 16777216 bytes
END
prints 1 raw k.cu --entry k --grid 1 --block 1 --in none.npy <<'END'
! kiln: run raw: none.npy cannot be opened: No such file or directory
END

# ---- Results ----
daemon
runs() {
	(cd "$DIR" && "$KILN" run raw "$@") >"$DIR/out" 2>"$DIR/err" ||
		fails "run raw $*: $(cat "$DIR/err")"
}
prints 0 raw k.cu --entry 'axpy<float>' --grid 1 --block 48 --in x.npy --inout y.npy=z.npy \
	--scalar f32:2.5 --scalar i64:48 <<'END'
kernel         axpy<float> of k.cu
grid x block   1,1,1 x 48,1,1
argument 0     6x8 f32, SIZE, in x.npy
argument 1     6x8 f32, SIZE, inout y.npy=z.npy
argument 2     f32:2.5
argument 3     i64:48
device         cpu
origin         compiled
first call     TIME, of it TIME to prepare
END
is z.npy '<f4' 6x8 '1000 + 3.5 * i'
is y.npy '<f4' 6x8 '1000 + i'

# The files have what the first launch wrote, however often it is timed; a text of FILE -.
(cd "$DIR" && "$KILN" run raw - --entry 'axpy<float>' --grid 2,1 --block 24x1x1 --in x.npy \
	--inout y.npy=z.npy --scalar f32:-1 --scalar i64:40 --time 7 <k.cu) >"$DIR/out" 2>&1
sed 's/takes [0-9.]* times/takes N times/' "$DIR/out" >"$DIR/times"
prints 0 cat "$DIR/times" <<'END'
kernel         axpy<float> of <stdin>
grid x block   2,1,1 x 24,1,1
argument 0     6x8 f32, SIZE, in x.npy
argument 1     6x8 f32, SIZE, inout y.npy=z.npy
argument 2     f32:-1
argument 3     i64:40
device         cpu
origin         compiled
first call     TIME, of it TIME to prepare
warm call      TIME, best TIME of 7
device time    TIME
a copy         TIME for the same SIZE, the kernel takes N times that
END
is z.npy '<f4' 6x8 '1000 if i < 40 else 1000 + i'
json 'j["bytes"] == 3 * 192 and j["warm_calls"] == 100 and j["entry"] == "axpy<float>"
	and j["grid"] == [1, 1, 1] and j["block"] == [48, 1, 1] and j["shared"] == 0
	and j["origin"] == "hit" and j["copy_us"] > 0 and j["warm_us"] >= j["warm_best_us"] > 0
	and j["arguments"][1] == {"option": "inout", "value": "y.npy=z.npy", "dtype": "f32",
	"shape": [6, 8], "file": "z.npy"} and j["arguments"][2] == {"option": "scalar",
	"value": "f32:0", "dtype": "f32"}' \
	raw k.cu --entry 'axpy<float>' --grid 1 --block 48 --in x.npy --inout y.npy=z.npy \
	--scalar f32:0 --scalar i64:48 --time

# Grid, block, shared memory; Fortran order becomes row-major; what is not written is zero.
runs k.cu --entry places --grid 2x3x2 --block 2,2,2 --out out:put.npy:i32:4x6x4
is out:put.npy '<i4' 4x6x4 '100 * (i // 24) + 10 * (i // 4 % 6) + i % 4'
runs k.cu --entry shared --grid 1 --block 48 --shared 192 --in xf.npy --out s.npy:f32:50
is s.npy '<f4' 50 '(47 - i) % 8 * 6 + (47 - i) // 8 if i < 48 else 0'
grep -q '^shared memory  192 bytes$' "$DIR/out" || fails "no shared memory: $(cat "$DIR/out")"

# Numbers by value; of the random ones there are as many as are asked for, and the seed makes them.
runs k.cu --entry types --grid 1 --block 1 --out t.npy:f64:7 --scalar i8:-128 --scalar u16:65535 \
	--scalar i32:-7 --scalar u64:9007199254740993 --scalar f32:-1e-3 --scalar f64:1e-3 \
	--scalar bool:1
is t.npy '<f8' 7 '[-128, 65535, -7, 9007199254740992, -0.0010000000474974513, 1e-3, 1][i]'
runs k.cu --entry halves --grid 1 --block 1 --out h.npy:bf16:2 --scalar f16:1 --scalar bf16:-1
is h.npy '<u2' 2 '[0x3c00, 0xbf80][i]'
random() {
	runs k.cu --entry shared --grid 1 --block 1000 --shared 4000 --random f32:1000 \
		--out "$1:f32:1000" --seed "$2"
}
random r1.npy 1
random r2.npy 1
random r3.npy 2
cmp -s "$DIR/r1.npy" "$DIR/r2.npy" || fails "the same seed gives other numbers"
cmp -s "$DIR/r1.npy" "$DIR/r3.npy" && fails "another seed gives the same numbers"

# Headers by content and name, macros, options.
runs h.cu --entry k --grid 1 --block 3 --out i.npy:f32:3 --macro FACTOR=21 --macro FLAG \
	--include inc/twice.h --include mine/twice.h=inc/twice.h --option=-std=c++17 \
	--option --use_fast_math
is i.npy '<f4' 3 '43'

# Headers in folders, and those that they include; -I is --include-dir, as often as one likes.
mkdir -p "$DIR/one/in" "$DIR/two"
printf '#include "in/deep.h"\n#include <other.h>\n' >"$DIR/one/top.h"
printf '#pragma once\n#include "../top.h"\n#define DEEP 4\n' >"$DIR/one/in/deep.h"
printf '#define OTHER 30\n' >"$DIR/two/other.h"
printf '#include <top.h>\n__global__ void k(float *y) { y[0] = DEEP + OTHER; }\n' >"$DIR/f.cu"
runs f.cu --entry k --grid 1 --block 1 --out f.npy:f32:1 -I one --include-dir=two
is f.npy '<f4' 1 '34'
(cd "$DIR" && "$KILN" explain raw f.cu --entry k -Ione -I two) >"$DIR/out" 2>&1
grep -q '^cached         yes' "$DIR/out" || fails "the same headers: $(cat "$DIR/out")"
sed -i 's/30/31/' "$DIR/two/other.h"
(cd "$DIR" && "$KILN" explain raw f.cu --entry k -Ione -I two) >"$DIR/out" 2>&1
grep -q '^cached         yes' "$DIR/out" && fails 'another header has the same key'

# A kernel's output comes before the report, or in it; also that of a kernel that fails.
cat >"$DIR/p.cu" <<'CU'
#include <cstdio>
#include <cassert>
__global__ void p(int n)
{
	printf("n is %d\033\n", n);
	assert(n < 4);
}
CU
runs p.cu --entry p --grid 1 --block 1 --scalar i32:3
[ "$(head -n 1 "$DIR/out")" = 'n is 3\x1b' ] || fails "nothing is printed: $(cat "$DIR/out")"
json 'j["printed"] == "n is 2\x1b\n" or j["printed"] == "n is 2\\x1b\n"' \
	raw p.cu --entry p --grid 1 --block 1 --scalar i32:2
raw p.cu --entry p --grid 1 --block 1 --scalar i32:4 >"$DIR/out" 2>"$DIR/err"
[ $? -eq 1 ] && [ "$(cat "$DIR/out")" = 'n is 4\x1b' ] || fails "no last words: $(cat "$DIR/out")"
grep -q 'kernel p of p.cu: block (0,0,0): thread (0,0,0): assertion failed: n < 4 at p.cu:6' \
	"$DIR/err" || fails "no assertion: $(cat "$DIR/err")"

# ---- What goes wrong: one clear sentence, and status 1. ----
# failed WORDS OPTION... : and nothing is written
failed() {
	words=$1
	shift
	raw "$@" --inout y.npy=never.npy >"$DIR/out" 2>"$DIR/err"
	[ $? -eq 1 ] && [ ! -s "$DIR/out" ] || fails "run raw $* does not fail"
	[ "$(grep -c . "$DIR/err")" -eq 1 ] || fails "run raw $*: more than one: $(cat "$DIR/err")"
	grep -qE "^kiln: run raw: $words" "$DIR/err" || fails "run raw $*: $(cat "$DIR/err")"
	[ ! -e "$DIR/never.npy" ] || fails "run raw $* wrote a file"
}
place='block \(0,0,0\), thread \(0,0,0\)'
failed "kernel beyond of k.cu: $place: writes beyond the end of argument 0, at byte" \
	k.cu --entry beyond --grid 1 --block 48
# A machine that stands still may need as long for what comes before the launch.
"$KILN" compile raw "$DIR/k.cu" --entry endless --target cpu >/dev/null || fails "compile endless"
late=': nothing completed on cpu for [0-9]*000 ms, the deadline of the call'
for limit in 1s 20s; do
	raw k.cu --entry endless --grid 1 --block 1 --timeout $limit --inout y.npy=never.npy \
		>"$DIR/out" 2>"$DIR/err" && fails "an endless kernel ended"
	! grep -q "$late" "$DIR/err" || break
done
[ ! -s "$DIR/out" ] && [ ! -e "$DIR/never.npy" ] && [ "$(grep -c . "$DIR/err")" -eq 1 ] &&
	grep -q "^kiln: run raw: kernel endless of k.cu$late" "$DIR/err" ||
	fails "an endless kernel: $(cat "$DIR/err")"
failed 'kernel axpy<float> of k.cu: the kernel takes 4 arguments and was given 1$' \
	k.cu --entry 'axpy<float>' --grid 1 --block 48
failed 'kernel beyond of k.cu: a block of 2048x1x1 threads is not within 1 to 1024 threads' \
	k.cu --entry beyond --grid 1 --block 2048
failed 'option -O9 is not allowed; allowed are' k.cu --entry beyond --grid 1 --block 48 --option=-O9

mkfifo "$DIR/one/pipe.h"
printf '#include <pipe.h>\n__global__ void k(float *y) {}\n' >"$DIR/pipe.cu"
failed 'the folder none to include from cannot be read: No such file' \
	f.cu --entry k --grid 1 --block 1 -I none
failed 'f.cu is no folder to include from' f.cu --entry k --grid 1 --block 1 -I f.cu
failed 'the header one/pipe.h is a FIFO; only ordinary files are read' \
	pipe.cu --entry k --grid 1 --block 1 -I one
raw f.cu --entry k --grid 1 --block 1 -I one >"$DIR/out" 2>"$DIR/err"
grep -q 'one/top.h includes other.h, which is in none of one' "$DIR/err" ||
	fails "a header that is in no folder: $(cat "$DIR/err")"

# Errors of the compiler are shown whole, by the names and lines that the author knows.
printf '__global__ void k(float *x)\n{\n\tx[0] = one;\n\tx[1] = two;\n}\n' >"$DIR/bad.cu"
printf '\n\nint three = four;\n' >"$DIR/inc/bad.h"
raw bad.cu --entry k --grid 1 --block 1 --inout y.npy=never.npy >"$DIR/out" 2>"$DIR/err"
[ $? -eq 1 ] && [ ! -s "$DIR/out" ] || fails "bad.cu does not fail"
head -n 1 "$DIR/err" | grep -qE '^kiln: run raw: bad.cu:3:.*error.*one' ||
	fails "not the first error: $(cat "$DIR/err")"
grep -qE '^bad.cu:4:.*two' "$DIR/err" ||
	fails "not the whole log: $(cat "$DIR/err")"
printf '#include "bad.h"\n__global__ void k() {}\n' |
	(cd "$DIR" && "$KILN" run raw - --entry k --grid 1 --block 1 --include inc/bad.h --json) \
		>"$DIR/out" 2>"$DIR/err"
[ $? -eq 1 ] || fails "bad.h does not fail"
grep -qE '^kiln: run raw: bad.h:3:.*error.*four' "$DIR/err" || fails "bad.h: $(cat "$DIR/err")"
grep -qE '^\{"error":"KILN_ECOMPILE","message":"bad.h:3:.*,"log":".*four' "$DIR/out" ||
	fails "bad.h as JSON: $(cat "$DIR/out")"
printf '#include "lost.h"\n' >"$DIR/lost.cu"
raw lost.cu --entry k --grid 1 --block 1 >"$DIR/out" 2>"$DIR/err"
grep -q '^kiln: run raw: lost.cu:1:.*"lost.h" is not among the headers' "$DIR/err" ||
	fails "lost.h: $(cat "$DIR/err")"

# After all that the daemon is as before.
runs k.cu --entry places --grid 1 --block 1 --out p.npy:i32:1
is p.npy '<i4' 1 '0'
finish
