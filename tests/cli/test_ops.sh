#!/bin/sh
# test_ops.sh: every operator from the command line: run verifies what it wrote, options become
# operands and attributes, explain and compile take the same description, and what the daemon
# refuses comes through.
. "$(dirname "$0")/lib.sh"
daemon

# verified COUNT OP OPTION... : runs it, and so many elements are right, none by much.
verified() {
	count=$1
	shift
	json "j['verified'] == $count and 0 <= j['largest_error'] <= 1 and j['op'] == '$1'" \
		"$KILN" run "$@"
}
verified 300 permute --shape 10x30 --perm 1,0
verified 300 softmax --shape 10x30 --scale 0.125
verified 300 log_softmax --shape 10x30 --dtype f64 --axis 0
verified 300 softmax_backward --shape 10x30 --stride 32,1 --offset 4
verified 300 log_softmax_backward --shape 10x30 --dtype bf16 --axis -1 --scale 2
verified 600 masked_softmax --shape 2x10x30 --kind bool --mask 2x1x30
verified 600 masked_softmax --shape 2x10x30 --kind bool --mask 10x1 --mask-dtype u8 --keep \
	--empty uniform --dtype f16
verified 600 masked_softmax --shape 2x10x30 --kind lengths --empty nan --scale 0.5
verified 600 masked_softmax --shape 2x10x30 --kind causal --diagonal -2
verified 600 masked_softmax --shape 2x10x30 --kind additive --mask 30 --mask-dtype f16
verified 600 masked_softmax_backward --shape 2x10x30 --kind lengths --mask 2x1
verified 600 masked_softmax_backward --shape 2x10x30 --kind additive --mask 30
verified 100 layer_norm --shape 4x25
verified 204 layer_norm --shape 2x2x5x5 --axes 2 --with gamma,beta,residual,sum,rstd --eps 1e-3 \
	--gamma-dtype f64
verified 104 rms_norm --shape 4x25 --with gamma,rstd --dtype f16 --gamma-dtype f32
verified 100 layer_norm_backward --shape 4x25
verified 50 layer_norm_backward --shape 4x25 --with gamma,dgamma,dbeta --dbeta-dtype f64
verified 150 layer_norm_backward --shape 4x25 --with gamma,dx,dgamma,dbeta --dtype f16 \
	--gamma-dtype f32 --dgamma-dtype f32
verified 25 rms_norm_backward --shape 4x25 --with dgamma --dtype bf16 --dgamma-dtype f32
# No rows: the sums are zeros, and none of the rest is there.
verified 50 rms_norm_backward --shape 0x25 --with dgamma,dbeta

verified 1200 gather --shape 3x10x40 --bounds trust
verified 510 gather --shape 3x10x40 --last 17 --dtype f16 --idx-dtype u8
verified 600 gather --shape 10x30 --last 60 --stride 33,1 --dtype c128 --idx-dtype i64
verified 1200 gather_backward --shape 3x10x40 --idx-dtype u16
verified 210 gather_backward --shape 3x10x40 --last 7 --dtype bf16 --bounds clamp
verified 210 gather_backward --shape 3x10x40 --last 7 --dtype u16
verified 1200 index_select --shape 30x40
verified 170 index_select --shape 10x40 --axis -1 --last 17 --dtype f16 --idx-dtype u8
verified 68 embedding --shape 30x4 --last 17 --dtype bf16 --idx-dtype i64 --bounds clamp
verified 1200 take_along_axis --shape 3x10x40
verified 840 take_along_axis --shape 3x10x40 --axis 1 --last 7 --idx-dtype u16
verified 1200 index_add --shape 30x40 --last 17 --alpha 0.5
verified 1200 scatter_add --shape 3x10x40 --last 7 --idx-dtype u8
verified 1200 index_add --shape 30x40 --last 300 --deterministic 0
verified 280 index_select_backward --shape 30x40 --last 7 --dtype bf16
verified 360 embedding_backward --shape 30x40 --last 9 --padding_idx 2
verified 60 giou --shape 3x20x4
verified 60 giou --shape 60x4 --dtype f16 --target-dtype u8 --clamp 0
verified 240 giou_backward --shape 3x20x4 --dtype f64 --target-dtype f32
verified 1 giou_loss --shape 64x20x4
verified 2 giou_loss --shape 64x20x4 --with offsets,count --target-dtype u8 --dtype bf16
verified 5120 giou_loss_backward --shape 64x20x4 --dtype f16
verified 240 giou_loss_backward --shape 3x20x4 --with offsets --target-dtype f16 --clamp 0
# No pairs: the mean of nothing.
verified 2 giou_loss --shape 0x20x4 --with count

# The report shows the options as they were understood.
json 'j["scale"] == 0.125 and j["axis"] == 0 and [(o["name"], o["dtype"], o["shape"], o["written"])
	for o in j["operands"]] == [("x", "f32", [10, 30], 0), ("y", "f32", [10, 30], 1)]' \
	"$KILN" run softmax --shape 10x30 --axis 0 --scale 0.125
json 'j["kind"] == "bool" and j["keep"] == 1
	and j["operands"][1] == {"name": "mask", "dtype": "u8", "shape": [10, 1], "written": 0}' \
	"$KILN" run masked_softmax --shape 2x10x30 --kind bool --mask 10x1 --mask-dtype u8 --keep \
	--empty uniform --dtype f16
json 'j["operands"][1] == {"name": "mask", "dtype": "i32", "shape": [2, 10], "written": 0}' \
	"$KILN" run masked_softmax --shape 2x10x30 --kind lengths --empty nan --scale 0.5
json 'j["eps"] == 0.001 and j["axes"] == 2 and [(o["name"], o["dtype"], o["shape"])
	for o in j["operands"] if o["name"] not in ("x", "y", "residual")] == [
	("gamma", "f64", [5, 5]), ("beta", "f32", [5, 5]), ("rstd", "f32", [2, 2]),
	("sum", "f32", [2, 2, 5, 5])]' \
	"$KILN" run layer_norm --shape 2x2x5x5 --axes 2 --with gamma,beta,residual,sum,rstd --eps 1e-3 \
	--gamma-dtype f64
json '[(o["dtype"], o["shape"]) for o in j["operands"]] == [
	("f16", [3, 10, 40]), ("u8", [10, 17]), ("f16", [3, 10, 17])]' \
	"$KILN" run gather --shape 3x10x40 --last 17 --dtype f16 --idx-dtype u8
json '[(o["name"], o["dtype"], o["shape"], o["written"]) for o in j["operands"]] == [
	("pred", "bf16", [64, 20, 4], 0), ("target", "u8", [640, 4], 0), ("offsets", "i32", [65], 0),
	("loss", "f32", [], 1), ("count", "i64", [], 1)]' \
	"$KILN" run giou_loss --shape 64x20x4 --with offsets,count --target-dtype u8 --dtype bf16
json '[(o["name"], o["bytes"]) for o in j["operands"]] == [("src", 4800), ("idx", 170),
	("dst", 2040)] and j["plan"]["variant"] in j["text"]' \
	"$KILN" explain gather --shape 3x10x40 --last 17 --idx-dtype u8
json '[(o["name"], o["bytes"]) for o in j["operands"] if o.get("bytes")] == [("pred", 480),
	("target", 960), ("loss", 4), ("count", 8)] and j["plan"]["variant"] in j["text"]' \
	"$KILN" explain giou_loss --shape 3x20x4 --dtype f16 --target-dtype f32 --with count
# Scales are computed, whatever the first operand's type.
json '[(o["name"], o["bytes"]) for o in j["operands"] if o.get("bytes")] == [("x", 320), ("y", 80),
	("scales", 64)]' \
	"$KILN" explain act_mul_quantize --shape 4x40 --dtype bf16 --to i8 --group 5
report() {
	"$KILN" run layer_norm --shape 2x2x5x5 --axes 2 --with gamma,beta,residual,sum,rstd \
		--eps 1e-3 --gamma-dtype f64 --time 3 |
		sed -E -e '1,/^note/d' -e 's/error [0-9.e-]+ of/error PART of/'
}
prints 0 report <<'END'
device         cpu
data           2x2x5x5 f32, seed 1, SIZE
origin         hit
verified       204 elements of y, rstd, sum, largest error PART of what is allowed
first call     TIME, of it TIME to prepare
warm call      TIME, best TIME of 3
moved          SIZE
device time    TIME, SIZE
END

# Every candidate of a problem gives right results, by its name.
"$KILN" explain softmax --shape 60x40 --json >"$DIR/plan" || fails "explain softmax"
second='import json, sys; print(json.load(open(sys.argv[1]))["choices"][1])'
choice=$(python3 -c "$second" "$DIR/plan")
json "j['choice'] == '$choice' and j['verified'] == 2400
	and 'choice         $choice' in j['plan']" "$KILN" run softmax --shape 60x40 --choice "$choice"

# The same description for other targets.
if "$KILN" compile softmax --shape 4x25 --target sm_90 >/dev/null 2>"$DIR/err"; then
	while read -r description; do
		# Word splitting of the options is meant.
		# shellcheck disable=SC2086
		json 'j["bytes"] > 1000 and "sm_90" in j["text"]' \
			"$KILN" compile $description --target sm_90
		# shellcheck disable=SC2086
		json 'j["cached"] and j["operands"][0]["d"] > 0' "$KILN" explain $description --target sm_90
	done <<'END'
permute --shape 10x30 --perm 1,0
softmax --shape 10x30 --dtype f16
log_softmax --shape 10x30 --axis 0
softmax_backward --shape 10x30
log_softmax_backward --shape 10x30
masked_softmax --shape 2x10x30 --kind bool --mask 2x1x30
masked_softmax_backward --shape 2x10x30 --kind lengths
layer_norm --shape 4x25 --with gamma,beta,mean,rstd
rms_norm --shape 4x25 --with gamma,residual,sum --dtype bf16
layer_norm_backward --shape 4x25
rms_norm_backward --shape 4x25 --with dgamma
gather --shape 3x10x40 --last 17 --idx-dtype u8
gather_backward --shape 3x10x40
giou --shape 3x20x4 --target-dtype u8
giou_backward --shape 3x20x4
giou_loss --shape 3x20x4 --with count
giou_loss_backward --shape 3x20x4
END
else
	grep -qi nvrtc "$DIR/err" || fails "no reason: $(cat "$DIR/err")"
	echo "not tested, compiling for GPUs: $(cat "$DIR/err")"
fi

# refused WORDS OP OPTION... : the daemon's sentence, with these words; the operator is named once.
refused() {
	words=$1
	shift
	"$KILN" run "$@" >"$DIR/out" 2>"$DIR/err"
	[ $? -eq 1 ] && [ ! -s "$DIR/out" ] || fails "run $* is not refused"
	grep -qE "^kiln: run $1: [^:]*$words" "$DIR/err" || fails "run $*: $(cat "$DIR/err")"
}
refused 'axis is 2; it may be -2 to 1' softmax --shape 3x4 --axis 2
refused 'x is i32; it must be' softmax --shape 3x4 --dtype i32
refused 'scale is inf' softmax --shape 3x4 --scale inf
refused 'kind is "some"; it may be' masked_softmax --shape 3x4 --kind some
refused 'dimension 0 of mask has size 5' masked_softmax --shape 3x4 --kind bool --mask 5x4
refused 'mask is f32' masked_softmax --shape 3x4 --kind bool --mask-dtype f32
refused 'axes is 3; it may be 1 to 2' layer_norm --shape 3x4 --axes 3
refused 'eps is -1; it must be 0 or more' rms_norm --shape 3x4 --eps -1
refused 'gamma is i8; it must be' layer_norm --shape 3x4 --with gamma --gamma-dtype i8
refused 'dx, dgamma and dbeta are all left out' rms_norm_backward --shape 3x4 --with gamma
refused 'src has rank 1; it needs 2 dimensions' gather --shape 40
refused 'idx is f32; it must be' gather --shape 3x40 --idx-dtype f32
refused 'bounds is "none"; it may be' gather --shape 3x40 --bounds none
refused 'dimension 1 of pred has size 5; it must be 4' giou --shape 3x5
refused 'target is i32; it must be' giou_loss --shape 3x4 --target-dtype i32
refused 'with offsets they must have ranks 3' giou_loss --shape 3x4 --with offsets
refused 'no candidate "none"' softmax --shape 3x4 --choice none
finish
