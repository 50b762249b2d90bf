#!/bin/sh
# test_help.sh: help and version, which need no daemon.
. "$(dirname "$0")/lib.sh"

prints 0 "$KILN" help <<'END'
usage: kiln [GLOBAL OPTION]... COMMAND [ARGUMENT]...

commands:
  status                      what the daemon is and has done
  devices                     the devices, and why one is missing
  ops                         the operators
  explain OP                  what the planner chooses, without compiling
  run OP                      run on random data, and verify against plain loops
  compile OP                  compile into the cache, without a device
  tune [OP]                   time the planner's candidates on the device, and keep the best
  cache ls                    the compiled kernels
  cache show KEY              one of them; a unique beginning of the key will do
  cache get KEY               its object (cubin), byte for byte
  cache verify                read and check every row
  cache trim BYTES            remove the least recently used down to BYTES
  cache clear                 remove all of them
  debug WHAT [VALUE [VALUE]]  what tests ask of kilnd --test-requests
  stop                        stop the daemon, and wait until it is gone
  help [COMMAND]              this list, one command, or 'requests'

global options:
  --socket PATH            the daemon's socket ($KILN_SOCKET)
  --device NAME            device of this command: cpu, cuda:0 ($KILN_DEVICE)
  --json                   print the daemon's answer as JSON
  --timeout TIME           give up after TIME: 30s, 500ms (30s)
  --autostart              start a daemon if none answers ($KILN_AUTOSTART=1)
  --no-autostart           never start one (default)
  --help                   explain the command and exit
  --version                print the version and exit

exit status: 0 fine, 1 what was asked for failed, 2 the command line is wrong
END
"$KILN" help >"$DIR/help"
"$KILN" --help | cmp - "$DIR/help" || fails "--help is not help"
"$KILN" -h | cmp - "$DIR/help" || fails "-h is not help"

prints 0 "$KILN" help explain <<'END'
usage: kiln explain OP [OPTION]...

what the planner chooses, without compiling

options:
  --shape 2x3x4            shape of x; "scalar" for rank 0
  --dtype TYPE             element type of x: f32, u8, ... (f32)
  --perm 1,0               axis k of y is axis perm[k] of x
  --stride 3,1             strides of x in elements; 0 repeats (row-major)
  --offset BYTES           where x begins in its buffer (0)
  --target NAME            plan for this target: cpu, sm_90 (the device's)

global options: see 'kiln help'
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

global options: see 'kiln help'
END
[ "$("$KILN" help cache | grep -c '^usage: kiln cache ')" -eq 6 ] || fails "help cache"
"$KILN" help cache >"$DIR/help"
"$KILN" cache --help | cmp - "$DIR/help" || fails "cache --help is not help cache"
# Every command of the list has help of its own.
"$KILN" help | sed -n '/^commands:/,/^$/s/^  \([a-z ]*[a-z]\).*/\1/p' | sed 's/  .*//' |
	while read -r name; do
		"$KILN" help $name | grep -q "^usage: kiln $name" || echo "$name"
	done >"$DIR/without"
[ ! -s "$DIR/without" ] || fails "no help: $(cat "$DIR/without")"

prints 0 "$KILN" --version <<'END'
kiln 0.1.0 (libkiln 0.1.0)
END
json 'j["version"] == j["library"] == "0.1.0"' "$KILN" --version

json '[c["name"] for c in j["commands"]][:2] == ["status", "devices"]
	and "json" in [o["name"] for o in j["global_options"]]' "$KILN" help
[ "$("$KILN" help --json | grep -o '"arguments":' | grep -c .)" -eq \
	"$("$KILN" help | sed -n '/^commands:/,/^$/p' | grep -c '^  ')" ] ||
	fails "help --json: not all"
json '[c["name"] for c in j["commands"]] == ["cache show"]
	and j["commands"][0]["arguments"] == "KEY"
	and [o["name"] for o in j["commands"][0]["options"]] == ["source", "log", "key"]' \
	"$KILN" help cache show
json 'len(j["commands"]) == 6' "$KILN" cache --help

prints 2 "$KILN" help frobnicate <<'END'
! kiln: 'frobnicate' is no command; see 'kiln help'
END
finish
