#!/bin/sh
# test_bugreport.sh: a report has all that compiles a kernel once more: its script makes the same
# object, or the same error, and no directory of the user's is in it.
. "$(dirname "$0")/lib.sh"
daemon
mkdir "$DIR/secret-place"
cat >"$DIR/secret-place/scale.cu" <<'END'
template <class T> __global__ void scale(T *x, int n)
{
	if ((int)threadIdx.x < n)
		x[threadIdx.x] *= FACTOR;
}
END
cd "$DIR" || exit 1

# compile TARGET OPTION... : the kernel of this test; its key, also if it failed.
compile() {
	target=$1
	shift
	"$KILN" compile raw "$DIR/secret-place/scale.cu" --entry 'scale<float>' --target "$target" \
		"$@" --json >"$DIR/json" 2>&1
	"$KILN" explain raw "$DIR/secret-place/scale.cu" --entry 'scale<float>' --target "$target" \
		"$@" | sed -n 's/^key *//p'
}

# report KEY DIRECTORY: makes one, and looks for what should not be in it.
report() {
	"$KILN" bugreport "$1" --output "$2" >"$DIR/out" 2>&1 || fails "bugreport: $(cat "$DIR/out")"
	! grep -rq secret-place "$2" || fails "$2 has the user's directory"
	grep -q "^key  *$1" "$2/report.txt" || fails "$2/report.txt: $(cat "$2/report.txt")"
	sh "$2/reproduce.sh" "${3:-}" >"$DIR/out" 2>&1
}

# A kernel that compiles, one of a user's that does, and one that does not.
"$KILN" compile softmax --shape 4x64 --target cpu >"$DIR/json" || fails "compile"
key=$(sed -n 's/^key *//p' "$DIR/json")
report "$key" shipped || fails "the script failed: $(cat "$DIR/out")"
"$KILN" cache get "$key" --output object || fails "cache get"
cmp shipped/unit.so object || fails "another object was made"
key=$(compile cpu --macro FACTOR=3 --option=-std=c++20)
report "$key" own || fails "the script failed: $(cat "$DIR/out")"
"$KILN" cache get "$key" --output object || fails "cache get"
cmp own/unit.so object || fails "another object was made"
grep -q 'scale.cu' own/plan.txt || fails "the file's name is lost"
key=$(compile cpu)
report "$key" failed && fails "the script did not fail"
grep -q "scale.cu:4:.*FACTOR" "$DIR/out" || fails "the script's error is: $(cat "$DIR/out")"
grep -q "^result *KILN_ECOMPILE: scale.cu:4:" failed/report.txt || fails "$(cat failed/report.txt)"
grep -q "FACTOR" failed/log.txt || fails "no log"

# The daemon remembers a kernel that ended the compiler, with all that it was given.
"$KILN" debug crash-compile 2 >/dev/null || fails "debug"
key=$(compile cpu --macro FACTOR=4)
report "$key" crashed || fails "the script failed: $(cat "$DIR/out")"
grep -q "^result *KILN_ECOMPILE: the compiler .* on scale<float> for cpu, twice" \
	crashed/report.txt || fails "$(cat crashed/report.txt)"

# NVRTC's, by the library that the daemon has.
nvrtc=
for pid in $("$KILN" debug children | awk '$1 == "compiler" { print $2 }'); do
	nvrtc=$(sed -n 's/.* \(\/.*libnvrtc\.so.*\)/\1/p' "/proc/$pid/maps" | head -n 1)
done
if [ -n "$nvrtc" ]; then
	key=$(compile sm_90 --macro FACTOR=3)
	report "$key" cubin "$nvrtc" || fails "the script failed: $(cat "$DIR/out")"
	"$KILN" cache get "$key" --output object || fails "cache get"
	cmp cubin/object.cubin object || fails "another cubin was made"
	key=$(compile sm_90)
	report "$key" refused "$nvrtc"
	[ $? -eq 1 ] || fails "refused: $(cat "$DIR/out")"
	grep -q 'scale.cu(4): error: identifier "FACTOR" is undefined' "$DIR/out" ||
		fails "the script's error is: $(cat "$DIR/out")"
fi

json 'j["directory"] == "kiln-bugreport-" + j["key"][:12]
	and [f["name"] for f in j["files"]][0] == "unit.cc"' "$KILN" bugreport "$(compile cpu)"
prints 1 "$KILN" bugreport "$(compile cpu)" --output own <<'END'
! kiln: bugreport: own cannot be made: File exists
END
[ "$(find own -name '*.txt' | wc -l)" -eq 4 ] || fails "the directory that was there is damaged"
"$KILN" bugreport 0000 >"$DIR/out" 2>"$DIR/err" && fails "a key that is not there"
[ "$(grep -c . "$DIR/err")" -eq 1 ] || fails "more than a sentence: $(cat "$DIR/err")"
[ ! -e kiln-bugreport-0000 ] || fails "a directory for nothing"

# The report has the daemon's reports and its state, and no secret, however it came to the daemon.
stop_daemon() {
	kill -TERM "$DAEMON"
	wait "$DAEMON"
	DAEMON=
}
stop_daemon
mkdir "$DIR/home"
export HOME="$DIR/home" GITHUB_TOKEN=token-0f9e8d7c AWS_SECRET_KEY=secret-1a2b3c4d
daemon --cache-dir "$HOME/cache"
"$KILN" key new seals >/dev/null || fails "key new"
secret=$(sed 's/.* //' "$XDG_CONFIG_HOME/kiln/keys/seals.key")
stop_daemon
export KILN_REMOTE='redis://somebody:pass-5e6f7a8b@127.0.0.1:1'
daemon --cache-dir "$HOME/cache"
"$KILN" run softmax --shape 4x64 >/dev/null || fails "run"
"$KILN" run raw "$DIR/secret-place/scale.cu" --entry 'scale<float>' --macro FACTOR=2 --grid 1 \
	--block 64 --random f32:64 --scalar i32:64 >/dev/null || fails "run raw"
"$KILN" debug kill executor >/dev/null || fails "debug kill"
tries=0
until "$KILN" faults ls | grep -q "killed by signal 9"; do
	tries=$((tries + 1))
	[ $tries -lt 2000 ] || { fails "no report" && break; }
	sleep 0.05
done
"$KILN" bugreport --output all >"$DIR/out" || fails "bugreport"
for file in report.txt now.txt status.json waits.json cache.json; do
	grep -q " $file$" "$DIR/out" || fails "$file is not listed: $(cat "$DIR/out")"
	[ -s "all/$file" ] || fails "all/$file is not there"
done
grep -q '^said  *the device process of cpu was killed by signal 9' all/fault-*.txt ||
	fails "no report of the fault"
grep -q '^  --remote redis://127.0.0.1:1/0$' all/now.txt || fails "settings: $(cat all/now.txt)"
grep -q 'Z kilnd\[[0-9]*\] info kilnd .* serves ' all/now.txt || fails "no log"
for word in pass-5e6f7a8b somebody token-0f9e8d7c secret-1a2b3c4d "$secret" "$HOME" \
	"$(printf %.40s "$secret")" 'x\[threadIdx' GITHUB_TOKEN; do
	! grep -rq -e "$word" all || fails "$word is in $(grep -rl -e "$word" all)"
done
[ "$(find all -type f ! -perm 600 ! -perm 644 | wc -l)" -eq 0 ] || fails "modes of files"
json 'sorted(f["name"] for f in j["files"])[0] == "cache.json"' "$KILN" bugreport --output again
prints 1 "$KILN" bugreport --output all <<'END'
! kiln: bugreport: all cannot be made: File exists
END
[ -s all/now.txt ] || fails "the directory that was there is damaged"
"$KILN" faults show | grep -q "^kind  *device" || fails "faults show"
"$KILN" faults show --with-source >/dev/null || fails "faults show --with-source"
json 'j["rows"][0]["times"] == 1 and j["rows"][0]["device"] == "cpu"' "$KILN" faults ls
prints 1 "$KILN" faults show 1234 <<'END'
! kiln: faults show: "1234" is no report, such as 20261122-101112-7f3a: `kiln faults ls` lists them
END
prints 2 "$KILN" faults show --json --with-source <<'END'
! kiln: faults show: --with-source goes not with --json, which has the keys
END
# The source of what was in flight, for whoever may see it.
cat >"$DIR/endless.cu" <<'END'
__global__ void endless(volatile float *x)
{
	while (x[0] < 1000.f)
		;
}
END
"$KILN" compile raw "$DIR/endless.cu" --entry endless --target cpu >/dev/null || fails "compile raw"
for seconds in 1 20; do
	"$KILN" run raw "$DIR/endless.cu" --entry endless --grid 1 --block 1 --random f32:64 \
		--timeout ${seconds}s >/dev/null 2>"$DIR/err" && fails "an endless kernel ended"
	! grep -q 'nothing completed on' "$DIR/err" || break
done
"$KILN" faults show --with-source >"$DIR/out" || fails "faults show --with-source"
if ! grep -q '^source of kernel [0-9a-f]\{64\}$' "$DIR/out" ||
	! grep -q 'while (x\[0\] < 1000.f)' "$DIR/out"; then
	fails "no source: $(cat "$DIR/out")"
fi
finish
