#!/bin/sh
# record.sh [COMMAND...] >tests/compat/NAME.jsonl: makes a transcript of what the library and the
# command line of this build say to a daemon.  Without arguments it is every request of version 1 of
# the protocol, which was recorded once and stays as it is; with them, "debug waits" say, what these
# commands of kiln ask, for requests that came later.  Needs KILN and KILND, and for the former
# CALLS (the program of calls.c).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
DIR=$(mktemp -d /tmp/kiln-record-XXXXXX)
export XDG_CONFIG_HOME="$DIR/config" KILN_SPECIALIZE=eager
mkfifo "$DIR/end"
"$KILND" --socket "$DIR/daemon.sock" --cache-dir "$DIR/cache" --device cpu --test-requests \
	2>"$DIR/log" &
kilnd=$!
while [ ! -S "$DIR/daemon.sock" ]; do sleep 0.05; done
python3 "$here/record.py" "$DIR/daemon.sock" "$DIR/kiln.sock" "$DIR" <"$DIR/end" &
recorder=$!
exec 9>"$DIR/end"
trap 'exec 9>&-; kill $kilnd 2>/dev/null || :; wait $recorder; rm -rf "$DIR"' EXIT
while [ ! -S "$DIR/kiln.sock" ]; do sleep 0.05; done
# A state that lasts a moment would be missing later.
until "$KILN" --socket "$DIR/daemon.sock" status --json |
	python3 -c 'import json, sys; sys.exit(json.load(sys.stdin)["workers"]["idle"] == 0)'; do
	sleep 0.1
done
export KILN_SOCKET="$DIR/kiln.sock"
kiln() {
	"$KILN" "$@" >/dev/null 2>"$DIR/said" </dev/null || echo "kiln $*: $(cat "$DIR/said")" >&2
}
if [ $# -gt 0 ]; then
	for command; do
		# shellcheck disable=SC2086
		kiln $command
	done
	kiln stop
	exit
fi
cat >"$DIR/scale.cu" <<'END'
__global__ void scale(const float *x, float *y, float a, int n)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		y[i] = a * x[i];
}
END
raw="$DIR/scale.cu --entry scale"
permute="permute --shape 8x8 --perm 1,0 --dtype f32"

kiln status
kiln devices
kiln ops
kiln help requests
kiln explain $permute
kiln compile $permute
KILN_LANE=off "$CALLS"
kiln run $permute
kiln run raw $raw --grid 1 --block 32 --random f32:64 --out "$DIR/y.npy:f32:64" --scalar f32:2 \
	--scalar i32:64
kiln explain raw $raw
kiln compile raw $raw
echo 'broken' >"$DIR/broken.cu"
kiln compile raw "$DIR/broken.cu" --entry broken
kiln cache ls --failed
# Sends, as the library does, requests of programs with CUDA and requests that come too late.
PYTHONPATH="$here" python3 - "$KILN_SOCKET" <<'END'
import sys, wire
sock = wire.connect(sys.argv[1])
square = {"d": 3, "s": [8, 8]}
for request in ({"t": "hello", "proto": 1, "version": "0.1.0", "pid": 1, "device": "cpu"},
                {"t": "prepare", "op": "permute", "tensors": [square, square],
                 "attrs": {"perm": [1, 0]}},
                {"t": "object", "call": 0, "alignments": [16, 16]},
                {"t": "cancel", "ticket": 2}):
    request["id"] = ["hello", "prepare", "object", "cancel"].index(request["t"]) + 1
    if "call" in request:
        request["call"] = reply["call"]
    wire.send(sock, wire.pack(request))
    reply = wire.unpack(wire.receive(sock)[0])[0]
END
kiln cache retry --all
kiln record --output "$DIR/manifest"
kiln warm "$DIR/manifest"
kiln cache ls
key=$("$KILN" cache ls --json |
	python3 -c 'import json, sys; print(json.load(sys.stdin)["rows"][0]["key"])')
kiln cache show "$key"
kiln cache get "$key" --output "$DIR/object"
kiln cache verify
kiln cache verify --recompile 100%
kiln cache pin "$key"
kiln cache unpin "$key"
kiln key new mine
kiln key ls
kiln key show mine
"$KILN" key show mine >"$DIR/mine.pub" || :
kiln key trust "$DIR/mine.pub"
kiln cache export "$DIR/pack"
kiln cache import "$DIR/pack"
kiln key distrust mine
kiln cache trim 1
kiln cache clear
kiln debug children
kiln stop
