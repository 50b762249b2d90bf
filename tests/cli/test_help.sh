#!/bin/sh
# test_help.sh: help and version, which need no daemon.
. "$(dirname "$0")/lib.sh"

prints 0 "$KILN" help <<'END'
usage: kiln [GLOBAL OPTION]... COMMAND [ARGUMENT]...

The daemon:
  status                      what the daemon is and has done
  top                         watch it live: calls, sessions, compiles under way; q ends
  metrics                     the daemon's figures as OpenMetrics
  devices                     the devices, and why one is missing
  ops                         the operators
  stop                        stop the daemon, and wait until it is gone

Operators:
  run OP                      run on random data or files, and verify against plain loops
  explain OP                  what the planner chooses, without compiling
  compile OP                  compile into the cache, without a device
  tune [OP]                   time the planner's candidates on the device, and keep the best

Statements:
  run map STATEMENT           run 'y[i] = x[i] * s' on random data or files, verified
  explain map STATEMENT       what the planner makes of a statement
  compile map STATEMENT       compile a statement into the cache

Kernels of your own:
  run raw FILE.cu             run a kernel of your own; -: standard input
  explain raw FILE.cu         whether the cache has a kernel of your own
  compile raw FILE.cu         compile a kernel of your own into the cache

The cache:
  cache ls                    the compiled kernels
  cache show KEY              one of them; a unique beginning of the key will do
  cache get KEY               its object (cubin), byte for byte
  cache table                 their registers, spills, shared memory and sizes
  cache retry [KEY]           forget a failure, so that it is compiled again
  cache verify                read and check every row
  cache trim [BYTES]          remove the least recently used down to BYTES
  cache clear                 remove all that are not pinned
  cache pin KEY               never trim this one
  cache unpin KEY             trim it like any other
  cache backup FILE           write all kernels to a file, without keys
  cache restore FILE          take in what 'cache backup' has written

Kernels for other hosts:
  cache export FILE           write kernels to a sealed file, for other hosts
  cache import FILE           take in what a trusted key has sealed
  record                      what the daemon was asked for, as a manifest for 'kiln warm'
  warm [MANIFEST]             compile what a manifest lists into the cache
  key ls                      the keys that seal packs here, and those that are trusted
  key new NAME                make a key that seals
  key show NAME               its public half, for other hosts
  key trust FILE              believe what this public key seals
  key distrust NAME           believe it no more

When something is wrong:
  doctor                      what is wrong on this host, and what to do about it
  faults ls                   reports of device processes and compilers that ended
  faults show [REPORT]        one of them; without REPORT the newest
  bugreport [KEY]             the daemon, or a compile, in a directory to be sent
  debug waits                 who waits now, for what, of whom and since when
  monitor                     requests for kernels, and calls, as they come
  slow                        the slowest requests and calls, and where their time went
  trace                       a timeline of requests, compiles and calls on devices, for Perfetto
  debug WHAT [VALUE [VALUE]]  what tests ask of kilnd --test-requests

Help:
  help [COMMAND]              this list, one command, or 'requests'
  completion SHELL            what bash, zsh or fish needs to complete lines of kiln

global options:
  --socket PATH            the daemon's socket ($KILN_SOCKET)
  --device NAME            device of this command: cpu, cuda:0, GPU-UUID ($KILN_DEVICE)
  --json                   print the daemon's answer as JSON
  --timeout TIME           give up after TIME: 30s, 500ms (30s)
  --autostart              start a daemon if none answers ($KILN_AUTOSTART=1)
  --no-autostart           never start one (default)
  --help                   explain the command and exit
  --version                print the version and exit

exit status: 0 fine, 1 what was asked for failed, 2 the command line is wrong
END
prints 0 "$KILN" <<'END'
usage: kiln [GLOBAL OPTION]... COMMAND [ARGUMENT]...

  The daemon               status, top, metrics, devices, ops, stop
  Operators                run, explain, compile, tune
  Statements               run map, explain map, compile map
  Kernels of your own      run raw, explain raw, compile raw
  The cache                cache ls, cache show, cache get, cache table,
                           cache retry, cache verify, cache trim, cache clear,
                           cache pin, cache unpin, cache backup, cache restore
  Kernels for other hosts  cache export, cache import, record, warm, key ls,
                           key new, key show, key trust, key distrust
  When something is wrong  doctor, faults ls, faults show, bugreport,
                           debug waits, monitor, slow, trace, debug
  Help                     help, completion

examples:
  kiln run softmax --shape 1024x4096 --time
  kiln explain softmax --shape 1024x4096 --target sm_90
  kiln run map 'y[i,j] = x[i,j] * s' --shape x=8x16 --set s=2.5

'kiln help' says what each does, and 'kiln help COMMAND' what it takes
END
"$KILN" help >"$DIR/help"
"$KILN" --help | cmp - "$DIR/help" || fails "--help is not help"
"$KILN" -h | cmp - "$DIR/help" || fails "-h is not help"

# Text from the rows of operators is looked at apart: it grows with every operator.
help_explain() {
	"$KILN" help explain | awk '
		/^usage: kiln explain/ { first = /explain OP/ }
		/^ *$/ { operators = 0; options = 0 }
		first && /^  --choice / { options = 0 }
		!first || !(operators || options) { print }
		first && /^  --offset / { options = 1 }
		/^operators, / { operators = 1 }'
}
prints 0 help_explain <<'END'
usage: kiln explain OP [OPTION]...

what the planner chooses, without compiling

options:
  --shape 2x3x4            shape of the first operand; "scalar" for rank 0
  --dtype TYPE             its element type: f32, f16, u8, ... (f32)
  --stride 3,1             its strides in elements; 0 repeats (row-major)
  --offset BYTES           where it begins in its buffer (0)
  --choice NAME            the candidate to take: one that explain lists, or generic
  --operand T:2x3:3,1@4    one operand: type, shape, strides, offset; -: none (in turn)
  --target NAME            plan for this target: cpu, sm_90 (the device's)
  --why                    of a miss: the nearest kernel in the cache, and what differs

operators, and the options that are not for all of them:

examples:
  # the kernel that would be taken, and the others
  kiln explain softmax --shape 1024x4096
  # without such a GPU
  kiln explain softmax --shape 1024x4096 --target sm_90
  # why the cache does not have it
  kiln explain softmax --shape 1024x4096 --why

global options: see 'kiln help'

usage: kiln explain map STATEMENT [OPTION]...

what the planner makes of a statement

options:
  --set NAME=NUMBER        a scalar of the statement, by value
  --shape NAME=2x3x4       shape of an operand (the output's follows)
  --dtype NAME=TYPE        its element type (f32; i32 in subscripts; output's: the first's)
  --bounds WORD            subscripts out of range: check, clamp or zero (check)
  --checked                check every access and name the first bad one
  --choice NAME            the candidate to take: one that explain lists, or generic
  --operand T:2x3:3,1@4    one operand: type, shape, strides, offset; -: none (in turn)
  --target NAME            for this target: cpu, sm_75 .. sm_120 (the device's)
  --why                    of a miss: the nearest kernel in the cache, and what differs

examples:
  # its kernel, grid and memory
  kiln explain map 'y[i] = x[i] * s' --shape x=1000 --set s=2

global options: see 'kiln help'

usage: kiln explain raw FILE.cu [OPTION]...

whether the cache has a kernel of your own

options:
  --entry NAME             a __global__ function, or a template-id: 'scale<float, 4>'
  --include FILE           a header, found without its directory; NAME=FILE: as NAME
  --include-dir FOLDER     find headers there; also -I FOLDER
  --macro NAME[=VALUE]     as -D of compilers
  --option OPTION          for the compiler: --option=-std=c++20, --option=--use_fast_math
  --target NAME            for this target: cpu, sm_75 .. sm_120 (the device's)
  --why                    of a miss: the nearest kernel in the cache, and what differs

examples:
  # whether it is compiled, and why not
  kiln explain raw scale.cu --why

global options: see 'kiln help'
END
"$KILN" help explain >"$DIR/explain"
while IFS= read -r line; do
	grep -qxFe "$line" "$DIR/explain" || fails "help explain has no line '$line'"
done <<'END'
  --bounds WORD            indices out of range: check, clamp or trust (check)
  --idx-dtype TYPE         type of indices: u8, u16, i32, i64 (i32)
  --last N                 size of dst, or of dsrc in backward, along the indexed axis
  --clamp N                sides of an intersection are at least 0: 1 or 0 (1)
  --target-dtype TYPE      type of indices: u8, u16, i32, i64 (i32); element type of target (pred's)
  --with gamma,..          the optional operands that are there (none; backward dx)
  --kind bool              what the mask is: bool, lengths, causal, additive
  --keep                   a bool mask that is not 0 where elements are kept
  --empty WORD             rows with nothing kept become zero, nan or uniform (zero)
  --scale X                factor of x (1)
  --diagonal N             causal: row q keeps the columns up to q + N (0)
  --mask 8x1x9             its shape (x's; for lengths without the last axis)
  --mask-dtype TYPE        its element type (bool; i32; for additive x's)
  --eps X                  added to the variance, or mean square (1e-5)
  --axes N                 how many trailing dimensions are normalized (1)
  --gamma-dtype TYPE       element type of gamma (x's)
  --beta-dtype TYPE        element type of beta (x's)
  --dgamma-dtype TYPE      element type of dgamma (x's)
  --dbeta-dtype TYPE       element type of dbeta (x's)
  --perm 1,0               axis k of y is axis perm[k] of x
  --axis N                 the dimension to go along, from the end if below 0 (-1)
  gather                   --bounds --idx-dtype --last
  gather_backward          --bounds --idx-dtype --last
  index_select             --axis --bounds --idx-dtype --last
  embedding                --bounds --idx-dtype --last --padding_idx
  take_along_axis          --axis --bounds --idx-dtype --last
  index_add                --axis --bounds --idx-dtype --last --alpha --deterministic
  scatter_add              --axis --bounds --idx-dtype --last --deterministic
  index_select_backward    --axis --bounds --idx-dtype --last --deterministic
  embedding_backward       --bounds --idx-dtype --last --padding_idx --deterministic
  giou                     --target-dtype --clamp
  giou_backward            --target-dtype --clamp
  giou_loss                --with offsets,count --target-dtype --clamp
  giou_loss_backward       --with offsets --target-dtype --clamp
  masked_softmax           --kind --keep --empty --scale --diagonal --mask --mask-dtype
  masked_softmax_backward  --kind --keep --scale --diagonal --mask --mask-dtype
  layer_norm               --with gamma,beta,residual,mean,rstd,sum --eps --axes --gamma-dtype
                           --beta-dtype
  rms_norm                 --with gamma,beta,residual,rstd,sum --eps --axes --gamma-dtype
                           --beta-dtype
  layer_norm_backward      --with gamma,dx,dgamma,dbeta --axes --gamma-dtype --dgamma-dtype
                           --dbeta-dtype
  rms_norm_backward        --with gamma,dx,dgamma,dbeta --axes --gamma-dtype --dgamma-dtype
                           --dbeta-dtype
  permute                  --perm
  softmax                  --axis --scale
  log_softmax              --axis --scale
  softmax_backward         --axis --scale
  log_softmax_backward     --axis --scale
END
"$KILN" help explain >"$DIR/help"
"$KILN" explain --help | cmp - "$DIR/help" || fails "explain --help is not help explain"

prints 0 "$KILN" cache show --help <<'END'
usage: kiln cache show KEY [OPTION]...

one of them; a unique beginning of the key will do

options:
  --source                 print the source as it was compiled
  --log                    print what the compiler said
  --key                    print the text that the key is the hash of

examples:
  # the source, by the beginning of its key
  kiln cache show 3f9a --source

global options: see 'kiln help'
END
[ "$("$KILN" help cache | grep -c '^usage: kiln cache ')" -eq 14 ] || fails "help cache"
"$KILN" help cache >"$DIR/help"
"$KILN" cache --help | cmp - "$DIR/help" || fails "cache --help is not help cache"
"$KILN" help run | grep '^usage: ' >"$DIR/usage"
prints 0 cat "$DIR/usage" <<'END'
usage: kiln run OP [OPTION]...
usage: kiln run map STATEMENT [OPTION]...
usage: kiln run raw FILE.cu [OPTION]...
END
"$KILN" help run raw >"$DIR/help"
"$KILN" run raw --help | cmp - "$DIR/help" || fails "run raw --help is not help run raw"
# Those of each command that takes an operator; none of others.
for command in explain run compile tune; do
	[ "$("$KILN" help $command | grep -c '^  [a-z_]*norm_backward  *--with gamma,dx')" -eq 2 ] ||
		fails "help $command without the operators"
done
"$KILN" help cache show | grep -q '^operators' && fails "help cache show has operators"
# Every command has help of its own, and examples that can be typed as they are.
"$KILN" help --json >"$DIR/table"
python3 -c 'import json, sys
for command in json.load(sys.stdin)["commands"]:
    print(command["name"])' <"$DIR/table" |
	while read -r name; do
		"$KILN" help $name | grep -q "^usage: kiln $name" || echo "$name"
	done >"$DIR/without"
[ ! -s "$DIR/without" ] || fails "no help: $(cat "$DIR/without")"

prints 0 "$KILN" --version <<'END'
kiln 0.1.0 (libkiln 0.1.0)
END
json 'j["version"] == j["library"] == "0.1.0"' "$KILN" --version

json '[c["name"] for c in j["commands"]][:2] == ["status", "top"]
	and "json" in [o["name"] for o in j["global_options"]]' "$KILN" help
python3 -c 'import json, sys
for command in json.load(sys.stdin)["commands"]:
    for example in command["examples"] or ["none"]:
        print(example["line"].split(" > ")[0])' <"$DIR/table" >"$DIR/examples" ||
	fails "a command without examples"
while IFS= read -r line; do
	sh -c "${line%% *}() { \"\$KILN\" \"\$@\" --help; }; $line" >/dev/null 2>"$DIR/err" ||
		fails "the example '$line': $(cat "$DIR/err")"
done <"$DIR/examples"
json '[c["name"] for c in j["commands"]] == ["cache show"]
	and j["commands"][0]["arguments"] == "KEY"
	and [o["name"] for o in j["commands"][0]["options"]] == ["source", "log", "key"]' \
	"$KILN" help cache show
json 'len(j["commands"]) == 14' "$KILN" cache --help

prints 2 "$KILN" help frobnicate <<'END'
! kiln: 'frobnicate' is no command; see 'kiln help'
END
finish
