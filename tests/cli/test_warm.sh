#!/bin/sh
# test_warm.sh: a manifest is recorded, read, and compiled; what is wrong with it is said.
. "$(dirname "$0")/lib.sh"
daemon

"$KILN" compile softmax --shape 8x100 >/dev/null || fails "compile"
"$KILN" compile permute --shape 8x100 --perm 1,0 >/dev/null || fails "compile"
prints 0 "$KILN" record --output "$DIR/m" <<'END'
recorded 2 problems in 'DIR/m'
END
"$KILN" record | sed '2d' >"$DIR/out"
sed '2d' "$DIR/m" | cmp - "$DIR/out" || fails "record prints something else than it writes"
prints 0 cat "$DIR/out" <<'END'
kiln-manifest 1
permute x=f32:8x100 y=f32:100x8 perm=[1,0]  # asked 1 time for cpu
softmax x=f32:8x100 y=f32:8x100  # asked 1 time for cpu
END
ls "$DIR" | grep -q part && fails "record leaves a part"
prints 1 "$KILN" record --output "$DIR/none/m" <<'END'
! kiln: record: 'DIR/none/m': No such file or directory
END
prints 2 "$KILN" record --json <<'END'
! kiln: record: with --json the manifest needs --output FILE
END
json 'j == {"problems": 2, "left_out": 0}' "$KILN" record --output "$DIR/m"
prints 2 "$KILN" record --follow 1 <<'END'
! kiln: record: with --follow the manifest needs --output FILE
END
prints 2 "$KILN" record --follow 0 --output "$DIR/f" <<'END'
! kiln: --follow '0': expected an integer from 1 to 86400
END
"$KILN" record --follow 1 --output "$DIR/f" &
following=$!
tries=0
until [ "$(grep -c 'asked [0-9]' "$DIR/f" 2>/dev/null)" = 2 ] || [ $tries -gt 2000 ]; do
	tries=$((tries + 1))
	sleep 0.1
done
"$KILN" compile softmax --shape 9x100 >/dev/null || fails "compile"
until grep -q 9x100 "$DIR/f" || [ $tries -gt 2000 ]; do
	tries=$((tries + 1))
	sleep 0.1
done
kill $following
wait $following 2>/dev/null
[ "$(grep -c 'asked [0-9]' "$DIR/f")" = 3 ] || fails "--follow: $(cat "$DIR/f")"
"$KILN" record --output "$DIR/m" >/dev/null
grep -v 9x100 "$DIR/m" >"$DIR/f" && mv "$DIR/f" "$DIR/m"

# All recorded kernels are there; a new one is compiled once.
prints 1 "$KILN" warm / <<'END'
! kiln: warm: '/': Is a directory
END
prints 0 "$KILN" warm "$DIR/m" <<'END'
warmed 2 of 2: 2 were there, 0 compiled, in TIME
END
echo 'permute x=f32:8x101 perm=[1,0] # a new one' >>"$DIR/m"
echo 'permute x=f32:8x101 perm=[0,1]' >>"$DIR/m"
prints 0 sh -c '"$KILN" warm - --target cpu <"$0"' "$DIR/m" <<'END'
warmed 4 of 4: 2 were there, 1 compiled, 1 need no kernel, in TIME
END
json 'j["hits"] == 3 and j["compiled"] == 0 and j["copies"] == 1 and j["failures"] == []' \
	"$KILN" warm "$DIR/m"

# A wrong line does not keep the others.
cat >"$DIR/bad" <<'END'
kiln-manifest 1

	# nothing
softmax x=f32:8x100 axis=2
softmax x=f33:8x100
softmax x=f32:8x102
kernel 00000000
END
prints 1 "$KILN" warm "$DIR/bad" <<'END'
warmed 1 of 4: 0 were there, 1 compiled, in TIME
! kiln: warm: 'DIR/bad', line 4: softmax: axis is 2; it may be -2 to 1
! kiln: warm: 'DIR/bad', line 5: column 11: "f33:8x100" is no operand: TYPE:SHAPE, as f32:64x1000
! kiln: warm: 'DIR/bad', line 7: no kernel in the cache has a key that begins with 00000000
END
json 'j["failed"] == 3 and [f["line"] for f in j["failures"]] == [4, 5, 7]' \
	sh -c '"$KILN" warm "$0" "$@"; [ $? -eq 1 ]' "$DIR/bad"
"$KILN" warm "$DIR/bad" --target cpu,sm_1 2>"$DIR/err" && fails "target sm_1"
grep -q '^kiln: warm --target: "sm_1" is no known target; known are cpu sm_75' "$DIR/err" &&
	[ "$(wc -l <"$DIR/err")" -eq 1 ] || fails "target sm_1: $(cat "$DIR/err")"

# Other manifests, and none.
: >"$DIR/empty"
printf 'kiln-manifest 2\n' >"$DIR/newer"
printf 'kiln-manifest 1 x\n' >"$DIR/other"
printf 'kiln-manifest 1\n%020000d\n' 0 >"$DIR/long"
for file in empty other; do
	prints 1 "$KILN" warm "$DIR/$file" <<END
! kiln: warm: 'DIR/$file', line 1: a manifest begins with the line "kiln-manifest 1"
END
done
prints 1 "$KILN" warm "$DIR/newer" <<'END'
! kiln: warm: 'DIR/newer' is a manifest of version 2, and this kiln reads version 1
END
prints 1 "$KILN" warm "$DIR/long" <<'END'
! kiln: warm: 'DIR/long', line 2: it has 16384 bytes or more, or a zero byte
END
prints 1 "$KILN" warm "$DIR/none" <<'END'
! kiln: warm: 'DIR/none': No such file or directory
END
prints 2 "$KILN" warm <<'END'
! kiln: warm: which kernels? a MANIFEST, --generic, or --compiler for those of the cache
END
prints 2 "$KILN" warm "$DIR/m" --generic <<'END'
! kiln: warm: either a manifest or --generic
END
prints 2 "$KILN" warm "$DIR/m" --target cpu,cpu <<'END'
! kiln: --target: cpu is there twice
END
prints 2 "$KILN" warm "$DIR/m" --target cpu, <<'END'
! kiln: --target: expected 1 to 16 names with ',' between: sm_80,sm_90,cpu
END
prints 2 "$KILN" warm "$DIR/m" --limit 3 <<'END'
! kiln: --limit goes with --compiler and no manifest
END
prints 2 "$KILN" warm --compiler "$DIR/none" <<'END'
! kiln: --compiler 'DIR/none': No such file or directory
END

# An interrupt loses the compiles under way, and nothing that was done.
echo 'kiln-manifest 1' >"$DIR/many"
for rows in 1 2 3 4 5 6 7 8; do
	echo "permute x=f32:${rows}0x33 perm=[1,0]" >>"$DIR/many"
done
before=$("$KILN" cache ls --limit 1000 | wc -l)
"$KILN" debug delay-compile 300 >/dev/null || fails "debug"
"$KILN" warm "$DIR/many" >/dev/null 2>&1 &
warming=$!
tries=0
until [ "$("$KILN" cache ls --limit 1000 | wc -l)" -ge $((before + 2)) ] || [ $tries -gt 2000 ]; do
	tries=$((tries + 1))
	sleep 0.05
done
kill $warming || fails "it had ended already"
wait $warming 2>/dev/null
"$KILN" debug delay-compile 0 >/dev/null
json 'j["hits"] >= 2 and j["hits"] + j["compiled"] == 8 and j["failed"] == 0' \
	"$KILN" warm "$DIR/many"

# By the compiler that comes next.
printf '#!/bin/sh\nexec g++ "$@"\n' >"$DIR/next++"
chmod 755 "$DIR/next++"
"$KILN" cache ls --json >"$DIR/rows"
json "j['failed'] == 0 and j['compiled'] == len(json.load(open('$DIR/rows'))['rows'])" \
	"$KILN" warm --compiler "$DIR/next++"
cd "$DIR" || exit 1
json "j['hits'] == 2 and j['compiled'] == 0" "$KILN" warm --compiler "next++" --limit 2
cd / || exit 1

# Compilers that are none: one ends at once, one fails, one kills its worker or, in a sandbox, tries
# to, one never ends.
# odd WORD COMMAND: a compiler that does this at a kernel; warm names the kernel and says the word.
odd() {
	printf '#!/bin/sh\nread -r first <unit.cc\n[ -z "$first" ] || %s\nexec g++ "$@"\n' "$2" \
		>"$DIR/odd++"
	chmod 755 "$DIR/odd++"
	"$KILN" warm --compiler "$DIR/odd++" --limit 1 >"$DIR/out" 2>"$DIR/err" &&
		fails "warm by a compiler with '$2' ends well"
	grep -qE "^kiln: warm: kernel [0-9a-f]{64}: .*$1" "$DIR/err" || fails "$2: $(cat "$DIR/err")"
	grep -q '^warmed 0 of 1: ' "$DIR/out" || fails "$2: $(cat "$DIR/out")"
}
odd 'cannot read what the compiler made: No such file or directory$' 'exit 0'
odd 'failed without a word, with exit status 1$' 'exit 1'
printf '#!/bin/sh\nkill -9 $PPID\n' >"$DIR/odd++"
"$KILN" warm --compiler "$DIR/odd++" --limit 1 >/dev/null 2>"$DIR/err" && fails "no worker"
grep -qE 'odd\+\+ (could not be started: it|cannot be used as a compiler:) ' "$DIR/err" ||
	fails "no worker: $(cat "$DIR/err")"
"$KILN" stop >/dev/null || fails "stop"
wait "$DAEMON"
daemon --compile-timeout 1000
odd 'odd.* took longer than 1000 ms .--compile-timeout.$' 'while :; do :; done'
"$KILN" stop >/dev/null || fails "stop"
wait "$DAEMON"
daemon
json 'j["failed"] == 0' "$KILN" warm "$DIR/m"

# The generic kernels as a manifest: a line each.
json 'j["problems"] > 300 and j["left_out"] == 0' "$KILN" record --generic --output "$DIR/g"
head -1 "$DIR/g" | grep -qx 'kiln-manifest 1' || fails "generic: $(head -3 "$DIR/g")"
[ "$("$KILN" record --generic | grep -c ' choice="generic"$')" = \
	"$(grep -c '^[a-z]' "$DIR/g" | { read -r lines && echo $((lines - 1)); })" ] ||
	fails "generic: some lines are of other kernels"
"$KILN" record --output "/tmp/$(printf '%4200s' '' | tr ' ' d)" 2>"$DIR/err"
[ $? -eq 2 ] && grep -q ": a path has at most [0-9]* bytes$" "$DIR/err" || fails "$(cat "$DIR/err")"

# On a terminal: a line that says how long it will take, which never becomes longer; Ctrl-C by it.
python3 - "$KILN" >"$DIR/out" 2>&1 <<'END' || fails "on a terminal: $(cat "$DIR/out")"
import os, pty, re, sys, time
pid, fd = pty.fork()
if not pid:
    os.execv(sys.argv[1], [sys.argv[1], "warm", "--generic"])
out, end, seconds = b"", time.monotonic() + 60, []
while len(seconds) < 20 and time.monotonic() < end:
    out += os.read(fd, 4096)
    seconds = [float(number) * {"us": 1e-6, "ms": 1e-3, "s": 1}[unit] for number, unit in
               re.findall(r", ([\d.]+) (us|ms|s) to go", out.decode(errors="replace"))]
os.write(fd, b"\x03")
os.waitpid(pid, 0)
assert len(seconds) >= 20, out
assert seconds == sorted(seconds, reverse=True), seconds
END

# Ctrl-C: how far it got.  timeout passes a signal on twice: to its child, and to their group.
before=$("$KILN" cache ls --limit 1000 | wc -l)
timeout 60 "$KILN" warm --generic >"$DIR/out" 2>"$DIR/err" &
warming=$!
tries=0
until [ "$("$KILN" cache ls --limit 1000 | wc -l)" -gt $before ] || [ $tries -gt 2000 ]; do
	tries=$((tries + 1))
	sleep 0.05
done
kill -INT $warming
wait $warming
grep -qE '^warm: [0-9]+ of [0-9]+ \([0-9]+ %\)' "$DIR/err" &&
	grep -q '^kiln: interrupted' "$DIR/err" ||
	fails "an interrupt: $(cat "$DIR/err")"
finish
