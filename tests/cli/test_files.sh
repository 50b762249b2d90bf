#!/bin/sh
# test_files.sh: operands that come from NumPy's files and go to them: what is computed of them,
# which options fit, and what is refused.  NumPy itself is asked, too, where it is.
. "$(dirname "$0")/lib.sh"

kiln() {
	(cd "$DIR" && "$KILN" "$@")
}
wrong() {
	sentence=$1
	shift
	printf '! kiln: %s\n' "$sentence" >"$DIR/sentence"
	prints 2 kiln run "$@" <"$DIR/sentence"
}

file x.npy '<f4' 6x8 'math.sin(i) * 3'
file xf.npy '<f8' 3x4 '100 * (i % 3) + i // 3' fortran
file bits.npy '<u2' 6x8 '0x3f80 + i % 5'
file idx.npy '|u1' 6x5 '(i * 3) % 8'
file far.npy '<i4' 6x5 'i - 10'
file len.npy '<i4' 6 '[3, 0, 8, 9, -1, 4][i]'
file mask.npy '|b1' 6x8 'i % 3 == 0'
file gamma.npy '<f8' 8 '1 + i / 8'
file pred.npy '<f4' 2x3x4 '[1, 1, 5, 5][i % 4] + i // 4'
file target.npy '|u1' 4x4 '[2, 2, 6, 7][i % 4]'
file offsets.npy '<i4' 3 '[0, 1, 99][i]'
file one.npy '<f4' '' '7'

# ---- Files that cannot be read or do not fit: nothing is asked of a daemon. ----
wrong "--in 'x.npy': expected NAME=FILE, where NAME is an operand" softmax --in x.npy
wrong "--in 'x=': expected NAME=FILE, where NAME is an operand" softmax --in x=
wrong "--out '=y.npy': expected NAME=FILE, where NAME is an operand" softmax --out =y.npy
wrong "--in names x twice: x.npy and xf.npy" softmax --in x=x.npy --in x=xf.npy
wrong "--out: y and mean both go to a.npy" layer_norm --in x=x.npy --out y=a.npy --out mean=a.npy
wrong "--in 'z=x.npy': softmax has no operand 'z'; it has x, y" softmax --in z=x.npy
wrong "--in 'y=x.npy': softmax writes y; --out is for that" softmax --in y=x.npy
wrong "--out 'x=x.npy': softmax reads x; --in is for that" softmax --out x=x.npy
wrong "--shape '8x6': x comes from x.npy, which has 6x8" softmax --in x=x.npy --shape 8x6
wrong "--shape 'scalar': x comes from x.npy, which has 6x8" softmax --in x=x.npy --shape scalar
wrong "--stride '8,1': x comes from x.npy, and is contiguous" softmax --in x=x.npy --stride 8,1
wrong "--offset '4': x comes from x.npy, and is contiguous" softmax --in x=x.npy --offset 4
only='only u16 can be taken for another type, bf16, and u8 for f8e4m3 or f8e5m2'
wrong "--dtype 'f16': x comes from x.npy, which has f32; $only" softmax --in x=x.npy --dtype f16
wrong "--dtype 'f16': x comes from bits.npy, which has u16; $only" \
	softmax --in x=bits.npy --dtype x=f16
wrong "--dtype 'y=bf16': there is no --in y=FILE whose type it could be" \
	softmax --in x=x.npy --dtype y=bf16
wrong "--dtype 'x=': expected NAME=TYPE, where NAME is an operand" softmax --in x=x.npy --dtype x=
wrong "--mask '8': mask comes from mask.npy, which has 6x8" \
	masked_softmax --in x=x.npy --kind bool --in mask=mask.npy --mask 8
wrong "--mask-dtype 'u8': mask comes from mask.npy, which has bool; $only" \
	masked_softmax --in x=x.npy --kind bool --in mask=mask.npy --mask-dtype u8
wrong "--last '7': idx comes from idx.npy, whose last axis has 5" \
	gather --in src=x.npy --in idx=idx.npy --last 7
wrong "--perm '0,1,2': 3 axes for 2 axes of x" permute --in x=x.npy --perm 0,1,2
prints 2 kiln explain softmax --shape 2x3 --dtype x=f16 <<'END'
! kiln: --dtype 'x=f16': 'kiln explain' takes no files; --dtype TYPE is that of the first operand
END

unreadable() {
	printf '! kiln: run: %s\n' "$1" >"$DIR/sentence"
	prints 1 kiln run softmax --in "x=$2" <"$DIR/sentence"
}
printf 'no file of arrays' >"$DIR/text.npy"
head -c 200 "$DIR/x.npy" >"$DIR/cut.npy"
sed "s/<f4/>f4/" "$DIR/x.npy" >"$DIR/big.npy"
sed "s/<u2/<V2/" "$DIR/bits.npy" >"$DIR/void.npy"
unreadable 'none.npy cannot be opened: No such file or directory' none.npy
unreadable '. is no regular file' .
unreadable 'text.npy: it is no .npy file: it does not begin with \x93NUMPY' text.npy
unreadable 'cut.npy: its shape has 192 bytes of elements, and the file 72, so it is cut off' cut.npy
unreadable "big.npy: it is big-endian (descr '>f4'); save x.astype(x.dtype.newbyteorder('<'))" \
	big.npy
typeless="its elements are two bytes without a type (descr '<V2', as NumPy stores bf16)"
unreadable "void.npy: $typeless; save x.view(numpy.uint16), and say --dtype NAME=bf16" void.npy
sed "s/|u1/|V1/" "$DIR/idx.npy" >"$DIR/byte.npy"
typeless="its elements are one byte without a type (descr '|V1', as NumPy stores floats of 8 bits)"
unreadable "byte.npy: $typeless; save x.view(numpy.uint8), and say --dtype NAME=f8e4m3 or f8e5m2" \
	byte.npy
prints 1 kiln run softmax --in x=none.npy --json <<'END'
{"error":"KILN_EIO","message":"run: none.npy cannot be opened: No such file or directory"}
! kiln: run: none.npy cannot be opened: No such file or directory
END

# ---- Results ----
daemon
runs() {
	(cd "$DIR" && "$KILN" run "$@") >"$DIR/out" 2>"$DIR/err" || fails "run $*: $(cat "$DIR/err")"
}
runs softmax --in x=x.npy --out y=soft.npy
sed '1,/^note/d' "$DIR/out" >"$DIR/rest"
sed 's/error [0-9.e-]* of/error PART of/' "$DIR/rest" >"$DIR/out"
prints 0 cat "$DIR/out" <<'END'
device         cpu
data           6x8 f32, seed 1, SIZE
from file      x 6x8 f32, x.npy
to file        y 6x8 f32, soft.npy
origin         compiled
verified       48 elements, largest error PART of what is allowed
first call     TIME, of it TIME to prepare
warm call      TIME, best TIME of 5
END
e='math.exp(x("x.npy")[i])'
row='sum(math.exp(v) for v in x("x.npy")[i // 8 * 8:i // 8 * 8 + 8])'
is soft.npy '<f4' 6x8 "$e / $row" 1e-6
json 'j["shape"] == [6, 8] and j["verified"] == 48 and [o.get("file") for o in j["operands"]] ==
	["x.npy", "soft.npy"]' kiln run softmax --in x=x.npy --out y=soft.npy --shape 6x8 --dtype f32

# Fortran order; rank 0; a file that is read is replaced only when all is done.
runs permute --perm 1,0 --in x=xf.npy --out y=turned.npy
is turned.npy '<f8' 4x3 '100 * (i % 3) + i // 3'
runs permute --perm '' --in x=one.npy --out y=one.npy
is one.npy '<f4' '' 7

# bf16 are u16 in files.
runs permute --perm 1,0 --in x=bits.npy --dtype x=bf16 --out y=half.npy
grep -q '^to file        y 8x6 bf16, half.npy$' "$DIR/out" || fails "no bf16: $(cat "$DIR/out")"
is half.npy '<u2' 8x6 'x("bits.npy")[i % 6 * 8 + i // 6]'
runs softmax --in x=bits.npy --dtype bf16
grep -q '^data           6x8 bf16' "$DIR/out" || fails "no bf16: $(cat "$DIR/out")"

# Floats of 8 bits are u8: 0x7e is 448, and beyond it there is NaN.
file codes.npy '|u1' 4 '[0x38, 0x7e, 0xff, 0x01][i]'
runs map 'y[i] = x[i] * 2' --in x=codes.npy --dtype x=f8e4m3 --out y=twice.npy
is twice.npy '|u1' 4 '[0x40, 0x7f, 0x7f, 0x02][i]'
runs map 'y[i] = sat_f8e5m2(x[i] * 256)' --in x=codes.npy --dtype x=f8e4m3 --out y=wide.npy
is wide.npy '|u1' 4 '[0x5c, 0x7b, 0x7f, 0x38][i]'

# Operands in files are read; shapes follow from them, and the rest is random.
runs layer_norm --in x=x.npy --in gamma=gamma.npy --out y=ln.npy --out mean=mean.npy
is mean.npy '<f4' 6 'sum(x("x.npy")[8 * i:8 * i + 8]) / 8' 1e-6
runs layer_norm --shape 6x8 --dtype f16 --in gamma=gamma.npy --out rstd=rstd.npy
grep -q '^from file      gamma 8 f64, gamma.npy$' "$DIR/out" || fails "no gamma"
# Some number of variance 1 is beyond 1, and above the largest f16 there is infinity.
file large.npy '<f2' 8 '65504'
runs layer_norm --shape 6x8 --dtype f16 --in gamma=large.npy
runs masked_softmax --in x=x.npy --kind lengths --in mask=len.npy --out y=lengths.npy
is lengths.npy '<f4' 6x8 '(math.exp(x("x.npy")[i]) / sum(math.exp(x("x.npy")[i // 8 * 8 + k])
	for k in range(8) if k < x("len.npy")[i // 8]) if i % 8 < x("len.npy")[i // 8] else 0)' 1e-6
runs masked_softmax --in x=x.npy --kind bool --in mask=mask.npy --mask 6x8
runs gather --in src=x.npy --in idx=idx.npy --out dst=gathered.npy
is gathered.npy '<f4' 6x5 'x("x.npy")[i // 5 * 8 + x("idx.npy")[i]]'
runs gather --in src=x.npy --in idx=far.npy --bounds clamp --out dst=clamped.npy
is clamped.npy '<f4' 6x5 'x("x.npy")[i // 5 * 8 + min(max(i - 10, 0), 7)]'
runs gather_backward --in ddst=gathered.npy --in idx=far.npy --bounds clamp --last 8
runs gather_backward --in ddst=gathered.npy --in idx=idx.npy --last 8 --out dsrc=summed.npy
is summed.npy '<f4' 6x8 'sum(x("gathered.npy")[i // 8 * 5 + k] for k in range(5)
	if x("idx.npy")[i // 8 * 5 + k] == i % 8)' 1e-5
# Offsets that are wrong name no more boxes than there are.
runs giou_loss --in pred=pred.npy --in target=target.npy --in offsets=offsets.npy \
	--out count=count.npy
is count.npy '<i8' '' 4

# ---- What fails leaves no file. ----
failed() {
	words=$1
	shift
	kiln run "$@" >"$DIR/out" 2>"$DIR/err"
	[ $? -eq 1 ] && [ ! -s "$DIR/out" ] || fails "run $* does not fail"
	grep -qE "^kiln: run.*$words" "$DIR/err" || fails "run $*: $(cat "$DIR/err")"
	[ ! -e "$DIR/never.npy" ] || fails "run $* wrote a file"
}
failed 'gather: 22 of 30 indices are out of range, which is 0 to 7$' \
	gather --in src=x.npy --in idx=far.npy --out dst=never.npy
failed 'wrong result: idx\[0,0\] is out of range and must be in it: --bounds trust relies on' \
	gather --in src=x.npy --in idx=far.npy --out dst=never.npy --bounds trust
failed 'gamma is i32; it must be' layer_norm --in x=x.npy --in gamma=len.npy --out y=never.npy
failed 'y is f32 and dy is f64; they must agree' \
	softmax_backward --in y=x.npy --in dy=xf.npy --out dx=never.npy
failed 'no/never.npy cannot be written: No such file or directory' \
	softmax --in x=x.npy --out y=no/never.npy
failed '/dev/null is no regular file' softmax --in x=x.npy --out y=/dev/null
# A disk that is full, as a limit of a file's size makes it: what was there stays.
printf 'as it was' >"$DIR/kept.npy"
limit='import os, resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
os.chdir(sys.argv[1])
os.execv(sys.argv[2], sys.argv[2:])'
python3 -c "$limit" "$DIR" "$KILN" run permute --shape 128x128 --perm 1,0 --out y=kept.npy \
	>"$DIR/out" 2>"$DIR/err"
[ $? -eq 1 ] || fails "a full disk is no failure"
grep -q '^kiln: run: kept.npy cannot be written: File too large$' "$DIR/err" ||
	fails "a full disk: $(cat "$DIR/err")"
[ "$(cat "$DIR/kept.npy")" = 'as it was' ] || fails "kept.npy is not as it was"
for left in "$DIR"/*.tmp; do
	[ ! -e "$left" ] || fails "$left is left behind"
done

# ---- NumPy itself ----
if python3 -c 'import numpy' 2>/dev/null; then
	(cd "$DIR" && python3 - <<'END'
import numpy as np
r = np.random.default_rng(1)
for name in "f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 b1 c8 c16".split():
    a = (r.standard_normal((3, 4, 5)) * 100).astype("i1").astype(name)
    np.save("np_%s.npy" % name, a)
    np.save("np_%s_f.npy" % name, np.asfortranarray(a))
np.lib.format.write_array(open("np_2.npy", "wb"), np.load("np_f4.npy"), version=(2, 0))
np.lib.format.write_array(open("np_3.npy", "wb"), np.load("np_f4.npy"), version=(3, 0))
END
	)
	for name in f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 b1 c8 c16 f2_f f4_f f8_f i1_f c16_f b1_f 2 3; do
		runs permute --perm 2,0,1 --in "x=np_$name.npy" --out "y=out_$name.npy"
	done
	(cd "$DIR" && python3 - <<'END'
import glob
import numpy as np
found = glob.glob("out_*.npy")
assert len(found) == 22, found
for out in found:
    x, y = np.load(out.replace("out_", "np_")), np.load(out)
    assert x.dtype == y.dtype and (x.transpose(2, 0, 1) == y).all(), out
END
	) || fails "NumPy reads something else"
else
	echo "not tested, files of NumPy itself: python3 has no numpy; those above are made by hand"
fi
finish
