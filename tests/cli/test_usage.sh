#!/bin/sh
# test_usage.sh: command lines that are wrong: the sentence names the option, the value and the
# rule, the status is 2, and nothing is asked of a daemon.
. "$(dirname "$0")/lib.sh"

wrong() {
	sentence=$1
	shift
	printf '! kiln: %s\n' "$sentence" >"$DIR/sentence"
	prints 2 "$KILN" "$@" <"$DIR/sentence"
}

wrong "'frob' is no command; see 'kiln help'" frob
wrong "'frob' is no command of 'kiln cache'; 'kiln help cache' lists them" cache frob
wrong "--bogus is no option of 'kiln status'; see 'kiln help status'" status --bogus
wrong "--bogus is no global option; see 'kiln help'" --bogus status
wrong "'stauts' is no command (did you mean 'status'?); see 'kiln help'" stauts
wrong "'cahce' is no command (did you mean 'cache'?); see 'kiln help'" cahce ls
wrong "'sl' is no command of 'kiln cache' (did you mean 'cache ls'?); 'kiln help cache' lists \
them" cache sl
wrong "'softmax' is no command of 'kiln run'; 'kiln help run' lists them" help run softmax
wrong "'rwa' is no command of 'kiln run' (did you mean 'run raw'?); 'kiln help run' lists them" \
	help run rwa
wrong "--jsno is no option of 'kiln status' (did you mean '--json'?); see 'kiln help status'" \
	status --jsno
wrong "--sokcet is no global option (did you mean '--socket'?); see 'kiln help'" --sokcet=x status
wrong "run 'sofmtax': there is no operator of that name (did you mean 'softmax'?); 'kiln ops' \
lists those there are" run sofmtax
wrong "'-x' is no option; see 'kiln help'" status -x
wrong "'extra' is one argument too many for 'kiln status'; usage: kiln status" status extra
wrong "'kiln run' needs more arguments; usage: kiln run OP; see 'kiln help run'" run
show='usage: kiln cache show KEY; see '
wrong "'kiln cache show' needs more arguments; $show'kiln help cache show'" \
	cache show
wrong "--json takes no value, but '1' was given" status --json=1
wrong "--socket needs a value: --socket PATH" status --socket
wrong "--socket '': a path is needed" status --socket=
wrong "--timeout '0': expected a time from 1ms to 24 days, as 30s or 500ms" --timeout 0 status
wrong "--timeout 'soon': expected a time from 1ms to 24 days, as 30s or 500ms" \
	--timeout soon status
wrong "--autostart: 'kiln status' never starts a daemon; explain, run, compile, tune, warm, key \
and cache import do" status --autostart

wrong "'kiln explain' needs --shape, as --shape 2x3x4" explain permute
wrong "'kiln run permute' needs --perm, as --perm 1,0" run permute --shape 2x3
wrong "'kiln explain permute' needs --perm, as --perm 1,0" explain permute --shape 2x3
wrong "--shape is given twice ('2x3' and '3x2')" explain permute --shape 2x3 --shape 3x2
for shape in 2x 2xx3 x2 2x-3 2.5 two 99999999999999999999 '2 3'; do
	wrong "--shape '$shape': expected non-negative integers separated by 'x' or ','" \
		run permute --shape "$shape" --perm 1,0
done
wrong "--shape '1x1x1x1x1x1x1x1x1': more than 8 axes" \
	run permute --shape 1x1x1x1x1x1x1x1x1 --perm 0
wrong "--perm '0,0': axis 0 is there twice; every axis comes once" \
	run permute --shape 2x3 --perm 0,0
wrong "--perm '0,2': axis 2 is out of range; 2 axes are 0..1" run permute --shape 2x3 --perm 0,2
wrong "--perm '0,1,2': 3 axes for 2 axes of --shape '2x3'" run permute --shape 2x3 --perm 0,1,2
wrong "--stride '1': 1 strides for 2 axes of --shape '2x3'" \
	run permute --shape 2x3 --stride 1 --perm 1,0
types='f16 bf16 f32 f64 i8 u8 i16 u16 i32 u32 i64 u64 bool c64 c128 f8e4m3 f8e5m2'
wrong "--dtype 'f8': it is no element type; there are $types" \
	run permute --shape 2x3 --perm 1,0 --dtype f8
wrong "--offset '4X': expected bytes, as 4096, 64K, 1.5M, 2GiB" \
	run permute --shape 2x3 --perm 1,0 --offset 4X

operand="expected TYPE:SHAPE[:STRIDES][@OFFSET], as f32:2x3, or - for one that is left out"
wrong "--operand 'f32': $operand" compile permute --operand f32
wrong "--operand 'f8': it is no element type; there are $types" compile permute --operand f8:2
wrong "--operand '2y3': expected non-negative integers separated by 'x' or ','" \
	explain permute --operand f32:2y3
wrong "--operand 'f32:2x3:1': 1 strides for 2 axes" explain permute --operand f32:2x3:1
wrong "--operand '4X': expected bytes, as 4096, 64K, 1.5M, 2GiB" \
	explain permute --operand f32:2x3@4X
wrong "--shape '2x3': --operand says it all, and neither goes with the other" \
	explain permute --operand f32:2x3 --shape 2x3
wrong "--operand 'f32:3': expected NAME=TYPE:SHAPE, as x=f32:2x3" \
	explain map 'y[i] = x[i]' --operand f32:3
wrong "--shape 'x=3': --operand says it all, and neither goes with the other" \
	explain map 'y[i] = x[i]' --operand x=f32:3 --shape x=3
wrong "--seed '-1': expected an integer from 0 to 9223372036854775807" \
	run permute --shape 2x3 --perm 1,0 --seed -1
wrong "--time '0': expected an integer from 1 to 1000000" \
	run permute --shape 2x3 --perm 1,0 --time 0
wrong "run: --shape and --stride describe more bytes than an address can name" \
	run permute --shape 4611686018427387904x8 --perm 1,0
wrong "run 'nosuch': there is no operator of that name; 'kiln ops' lists those there are" \
	run nosuch --shape 2x3

# Options of other operators, and what they are for.
all="and those of all operators; see 'kiln help"
for command in run explain compile tune; do
	wrong "--axes is no option of softmax, which takes --axis, --scale, $all $command'" \
		$command softmax --shape 2x3 --axes 1
	wrong "'kiln $command masked_softmax' needs --kind, as --kind bool" \
		$command masked_softmax --shape 2x3
done
wrong "--with is no option of permute, which takes --perm, $all run'" \
	run permute --shape 2x3 --perm 1,0 --with gamma
takes='--with, --axes, --gamma-dtype, --dgamma-dtype, --dbeta-dtype'
wrong "--beta-dtype is no option of layer_norm_backward, which takes $takes, $all run'" \
	run layer_norm_backward --shape 2x3 --beta-dtype f32
optional='it has gamma,beta,residual,rstd,sum'
wrong "--with 'gamma,delta': rms_norm has no optional operand 'delta'; $optional" \
	run rms_norm --shape 2x3 --with gamma,delta
wrong "--with 'x': rms_norm has no optional operand 'x'; $optional" \
	run rms_norm --shape 2x3 --with x
wrong "--gamma-dtype 'f8': it is no element type; there are $types" \
	run rms_norm --shape 2x3 --with gamma --gamma-dtype f8
wrong "--scale 'big': expected a number, as 0.125 or 1e-5" run softmax --shape 2x3 --scale big
wrong "--eps '1e-5x': expected a number, as 0.125 or 1e-5" run rms_norm --shape 2x3 --eps 1e-5x
wrong "--axis 'last': expected an integer from -9223372036854775808 to 9223372036854775807" \
	run softmax --shape 2x3 --axis last
wrong "--mask '2x': expected non-negative integers separated by 'x' or ','" \
	run masked_softmax --shape 2x3 --kind bool --mask 2x
wrong "--keep takes no value, but '1' was given" \
	run masked_softmax --shape 2x3 --kind bool --keep=1
wrong "'kiln tune' finds the choice by itself; leave it out" \
	tune softmax --shape 2x3 --choice rows
wrong "BYTES 'lots': expected bytes, as 4096, 64K, 1.5M, 2GiB" cache trim lots
wrong "cache trim: what is to go? BYTES or --rows that may stay, --older-than, --op, --target or \
--compiler; 'kiln cache clear' removes all" cache trim
wrong "--older-than 'soon': expected a time, as 90s, 15m, 12h, 30d or 2w" \
	cache trim --older-than soon
wrong "--older-than '0d': expected a time, as 90s, 15m, 12h, 30d or 2w" cache trim --older-than 0d
wrong "--rows '-1': expected an integer from 0 to 1000000000" cache trim --rows=-1
wrong "--recompile '0%': expected a part of the kernels, as 5% or 100%" cache verify --recompile 0%
wrong "--recompile '5x': expected a part of the kernels, as 5% or 100%" cache verify --recompile 5x
wrong "--seed chooses the sample of --recompile, which is not given" cache verify --seed 3
wrong "--sort 'beauty': expected name, registers, spills, shared, local, bytes or time" \
	cache table --sort beauty
wrong "--sort 'beauty': expected used, hits, bytes or created" cache ls --sort beauty
wrong "--limit '0': expected an integer from 1 to 1000000" cache ls --limit 0
compile='delay-compile, fail-compile, hang-compile, crash-compile'
others='available-memory, delay-store, delay-launch, kill, drop, corrupt, children, expire'
others="$others, store-fault, store-deadline, look"
wrong "debug: 'foo' is nothing it can do; it can do $compile, $others" debug foo
wrong "debug kill needs role" debug kill
wrong "debug drop: 'now' is one argument too many" debug drop now
wrong "ms 'soon': expected an integer from 0 to 2147483647" debug delay-compile soon

# Nobody answers: that is a failure of what was asked for, not of the command line.
"$KILN" status >"$DIR/out" 2>"$DIR/err"
[ $? -eq 1 ] || fails "status without a daemon does not end with 1"
grep -q "^kiln: status: .*$KILN_SOCKET" "$DIR/err" || fails "no socket named: $(cat "$DIR/err")"
[ ! -s "$DIR/out" ] || fails "output although nothing was answered"
# KILN_AUTOSTART is for commands that work on a device.
KILN_AUTOSTART=1 "$KILN" status >/dev/null 2>&1 && fails "status started a daemon"
[ ! -e "$KILN_SOCKET" ] || fails "there is a socket"
finish
