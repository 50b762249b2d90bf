#!/bin/sh
# test_map.sh: statements from the command line: what they compute of files and of random data, how
# subscripts that stray end, where kernels come from, and what is refused.
. "$(dirname "$0")/lib.sh"
daemon

kiln() {
	(cd "$DIR" && "$KILN" "$@")
}
# wrong STATUS SENTENCE STATEMENT [OPTION...]
wrong() {
	status=$1
	printf '! kiln: %s\n' "$2" >"$DIR/sentence"
	shift 2
	prints "$status" kiln run map "$@" <"$DIR/sentence"
}

# ---- Files: what is computed, by the file's own formula ----
file x.npy '<f4' 6x8 'i - 20'
file b.npy '<f4' 8 'i * 10'
file idx.npy '|u1' 6x5 '(i * 3) % 8'
file k.npy '<i4' 6 'i * i'
json 'j["verified"] == 48' kiln run map 'y[i,j] = x[i,j] * s + b[j]' --in x=x.npy --in b=b.npy \
	--set s=2.5 --out y=y.npy
is y.npy '<f4' 6x8 '(i - 20) * 2.5 + i % 8 * 10'
json 'j["verified"] == 30' kiln run map 'y[i,k] = x[i,idx[i,k]]' --in x=x.npy --in idx=idx.npy \
	--out y=y.npy
is y.npy '<f4' 6x5 'i // 5 * 8 + (i * 3) % 8 - 20'
json 'j["verified"] == 6' kiln run map 'y[i] += x[i,j] * b[j]' --in x=x.npy --in b=b.npy \
	--out y=y.npy
is y.npy '<f4' 6 'sum((i * 8 + j - 20) * j * 10 for j in range(8))'
json 'j["verified"] == 6' kiln run map 'y[i] = k[i] % 7 + n' --in k=k.npy --set n=3 --dtype y=i64 \
	--out y=y.npy
is y.npy '<i8' 6 'i * i % 7 + 3'
json 'j["verified"] == 1' kiln run map 'y max= x[i,j]' --in x=x.npy --out y=y.npy
is y.npy '<f4' '' '27'

# ---- Random data, verified ----
json 'j["verified"] == 4096 * 3 and j["operands"][1]["shape"] == [3, 64, 64]' \
	kiln run map 'y[c,i,j] = x[c,j,i]' --shape x=3x64x64
json 'j["verified"] == 1000 and j["operands"][0]["dtype"] == "f16"' \
	kiln run map 'y[i] = sin(x[i]) * cos(x[i]) + tan(x[i] / 4)' --shape x=1000 --dtype x=f16
json 'j["verified"] == 64 and j["operands"][1]["dtype"] == "i32"' \
	kiln run map 'y[i] = t[idx[i]]' --shape t=9 --shape idx=64

# ---- The output, where nobody says what it is: its indices' sizes, the right side's type ----
# output TYPE SHAPE STATEMENT [OPTION...]; the types are numbered as in kiln.h.
output() {
	expected="j['operands'][-1]['d'] == $1 and j['operands'][-1]['s'] == [$2]"
	shift 2
	json "$expected" kiln explain map "$@"
}
output 3 4,5 'y[i,j] = a[i,j] + b[i,j]' --shape a=1x5 --shape b=4x5
output 3 4,5 'y[i,j] = a[i,j] + b[j]' --shape a=4x1 --shape b=5 --dtype a=f16
output 1 9 'y[i] = m[i] ? 0 : x[i] * s' --shape m=9 --shape x=9 --dtype m=bool --dtype x=f16 \
	--set s=2
output 13 9 'y[i] = x[i] > 0' --shape x=9
output 11 '' 'y += x[i] > 0' --shape x=9
# Integers wrap in the type that they are computed in, a bool's too.
json 'j["verified"] == 99' kiln run map 'y[i] = m[i] - x[i] * x[i]' --shape m=99 --shape x=99 \
	--dtype m=bool --dtype x=u32 --dtype y=i64

# ---- Scalars are no part of the kernel ----
json 'j["origin"] == "compiled"' kiln run map 'y[i] = x[i] * s' --shape x=100 --set s=1.5
json 'j["origin"] == "hit"' kiln run map 'y[i] = x[i] * s' --shape x=100 --set s=-7
json 'j["origin"] == "hit"' kiln run map 'y[i] = x[i] * s' --shape x=200 --set s=0.1

# ---- Subscripts that stray ----
set -- 'y[i] = x[i + 1]' --shape x=8 --shape y=8
zero='and 0 was read there; checked names the first'
wrong 1 "run map: 1 subscript was out of range, $zero" "$@"
wrong 1 'run map: subscript 0 of x at column 10 is not within 0 to 7; first where i=7' \
	"$@" --checked
json 'j["verified"] == 8' kiln run map "$@" --bounds zero
json 'j["verified"] == 8' kiln run map "$@" --bounds clamp
json 'j["verified"] == 8' kiln run map 'y[i] = i < 7 ? x[i + 1] : 0' --shape x=8 --shape y=8 \
	--checked

# ---- What the planner makes of it ----
kiln explain map 'y[i,j] = x[i,j] * 2' --shape x=100x64 --target sm_90 >"$DIR/plan"
grep -q '^note           4 at once along j; loops i..j of 6400$' "$DIR/plan" || fails "explain map"
grep -q '^x              25600 bytes read, aligned to 16$' "$DIR/plan" || fails "explain map"
json 'j["origin"] == "compiled"' kiln compile map 'y[i,j] = x[i,j] * 3' --shape x=100x64

# ---- What is refused ----
# Brackets that are none's, an index too often: the command reads the statement before any daemon.
index="run map 'y[i,i,i,i,i,i,i,i,i,i] = x[i]': y: each index stands once on its left side"
wrong 2 "$index" 'y[i,i,i,i,i,i,i,i,i,i] = x[i]' --shape x=4
wrong 2 "run map 'y max= x[i]': y: each index stands once on its left side" \
	'y max= x[i]' --shape x=4 --set max=3
shapeless="its shape does not follow from the others: say --shape"
wrong 2 "run map 'y]],,,,[i] = x[,,,,,,i]': y: $shapeless" \
	'y]],,,,[i] = x[,,,,,,i]' --shape x=4
wrong 1 'run map: column 8: there is no function sine; docs/map.md lists those there are' \
	'y[i] = sine(x[i])' --shape x=8
wrong 1 'run map: column 19: index j goes over 4 values, and dimension 0 of b has size 5' \
	'y[i,j] = x[i,j]+b[j]' --shape x=3x4 --shape b=5 --shape y=3x4
wrong 2 "'kiln run map' needs --shape b=2x3x4, or --in b=FILE" 'y[i] = x[i] + b[i]' --shape x=3
wrong 2 "--shape 'z=4': expected NAME=2x3x4 with an operand of the statement" 'y[i] = x[i]' \
	--shape x=4 --shape z=4
wrong 2 "--set 's': expected NAME=NUMBER" 'y[i] = x[i] * s' --shape x=4 --set s
wrong 2 "--out 'x=x.npy': the statement does not write x" 'y[i] = x[i]' --shape x=4 --out x=x.npy
wrong 2 "run map 'x[i]': expected an operand, '=' and a value without that operand" 'x[i]' \
	--shape x=4

finish
