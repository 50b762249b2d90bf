#!/bin/sh
# test_log.sh: what a command that fails says: the sentence, the compiler's log after it, and
# with --json both as an object.
. "$(dirname "$0")/lib.sh"

root=$(cd "$(dirname "$0")/../.." && pwd)
cp -R "$root/kernel_src" "$DIR/kernels"
rm -f "$DIR/kernels/CMakeLists.txt"
printf 'static int broken = no_such_name;\nstatic int second = nor_this;\n' \
	>>"$DIR/kernels/ops/permute.cuh"
daemon --kernel-dir "$DIR/kernels"

for command in run compile; do
	"$KILN" $command permute --shape 8x9 --perm 1,0 >"$DIR/out" 2>"$DIR/err"
	[ $? -eq 1 ] || fails "$command: a broken kernel is no failure"
	[ ! -s "$DIR/out" ] || fails "$command: standard output has $(cat "$DIR/out")"
	head -1 "$DIR/err" | grep -q "^kiln: $command permute: ops/permute.cuh:.*no_such_name" ||
		fails "$command: no sentence first: $(cat "$DIR/err")"
	# The sentence is the log's first error, which is not said again; the second one is in the log.
	[ "$(grep -c 'error:.*no_such_name' "$DIR/err")" -eq 1 ] ||
		fails "$command: the first error twice: $(cat "$DIR/err")"
	sed 1d "$DIR/err" | grep -q nor_this ||
		fails "$command: no log after it: $(cat "$DIR/err")"

	"$KILN" $command permute --shape 8x9 --perm 1,0 --json >"$DIR/json" 2>/dev/null
	[ $? -eq 1 ] || fails "$command --json: a broken kernel is no failure"
	python3 -c 'import json, sys
j = json.load(open(sys.argv[1]))
sys.exit(not (j["error"] == "KILN_ECOMPILE" and "no_such_name" in j["message"]
	and "nor_this" not in j["message"] and "nor_this" in j["log"]))' "$DIR/json" ||
		fails "$command --json: $(cat "$DIR/json")"
done

# A failure that no compiler had a part in has no log.
"$KILN" cache show abcdef --json >"$DIR/json" 2>"$DIR/err"
[ $? -eq 1 ] || fails "cache show of no key"
[ "$(grep -c . "$DIR/err")" -eq 1 ] || fails "more than a sentence: $(cat "$DIR/err")"
python3 -c 'import json, sys
j = json.load(open(sys.argv[1]))
sys.exit(not (sorted(j) == ["error", "message"] and j["error"] == "KILN_ENOENT"
	and "abcdef" in j["message"]))' "$DIR/json" || fails "cache show --json: $(cat "$DIR/json")"
finish
