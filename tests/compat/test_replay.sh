#!/bin/sh
# test_replay.sh: the daemon answers what was recorded of clients of earlier releases as it did
# then, and clients of later ones as well; and no request of the protocol is missing there.
. "$(dirname "$0")/../cli/lib.sh"

here=$(cd "$(dirname "$0")" && pwd)
export KILN_SPECIALIZE=eager PYTHONDONTWRITEBYTECODE=1
command -v python3 >/dev/null 2>&1 || {
	echo "no python3"
	exit 77
}

for name in $(sed -n 's/^\tX("\([a-z.]*\)".*/\1/p' "$here/../../client/wire/protocol.h"); do
	grep -qF "\"request\": {\"t\": \"$name\"," "$here"/*.jsonl ||
		fails "no transcript in tests/compat has a request $name: record the command that" \
			"asks it, sh tests/compat/record.sh 'COMMAND' >tests/compat/$name.jsonl"
done
for transcript in "$here"/*.jsonl; do
	modes=--newer
	[ "$transcript" = "$here/version1.jsonl" ] && modes="--older --newer"
	for mode in $modes; do
		daemon
		python3 "$here/replay.py" "$KILN_SOCKET" "$DIR" "$transcript" "$mode" >"$DIR/said" 2>&1 ||
			fails "$transcript $mode: $(cut -c 1-400 "$DIR/said")"
		# Its last request is to stop.
		wait "$DAEMON" || fails "the daemon did not end well"
		DAEMON=
		rm -rf "$DIR/cache" "$XDG_CONFIG_HOME" "$DIR"/*.pub "$DIR/pack" "$DIR/manifest"
	done
done
finish
