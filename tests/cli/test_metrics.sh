#!/bin/sh
# test_metrics.sh: kilnd --metrics and kiln metrics, as Prometheus itself sees them: promtool finds
# nothing to say of the text, a server scrapes it, and two alerts of examples/monitoring fire.
# Those parts are left out where there is no Prometheus.
. "$(dirname "$0")/lib.sh"

root=$(cd "$(dirname "$0")/../.." && pwd)
monitoring=$root/examples/monitoring
server=
PROM_DIR=$DIR/prometheus

metrics() {
	python3 "$TOOLS/metrics.py" "$@"
}
have() {
	command -v "$1" >/dev/null 2>&1
}

metrics dashboard "$monitoring/kiln-dashboard.json" "$monitoring/kiln-alerts.yml" \
	"$root/docs/metrics.md" || fails "the dashboard or the rules"

daemon --metrics=127.0.0.1:0
address=$("$KILN" status | sed -n 's/^metrics  *at //p')
KILN_NAME=weights "$KILN" run permute --shape 64x48 --perm 1,0 >/dev/null || fails "run"

# Both formats have the same families; kiln metrics prints what is served.
metrics http "$address" application/openmetrics-text >"$DIR/open" || fails "$(cat "$DIR/open")"
metrics http "$address" >"$DIR/plain" || fails "$(cat "$DIR/plain")"
"$KILN" metrics >"$DIR/printed" || fails "kiln metrics"
head -1 "$DIR/open" | grep -q '^# application/openmetrics-text; version=1.0.0' ||
	fails "$(head -1 "$DIR/open")"
head -1 "$DIR/plain" | grep -q '^# text/plain; version=0.0.4' || fails "$(head -1 "$DIR/plain")"
[ "$(tail -1 "$DIR/open")" = '# EOF' ] || fails "no end: $(tail -1 "$DIR/open")"
for file in open printed plain; do
	sed -n 's/^# TYPE \([a-z_]*\) .*/\1/p' "$DIR/$file" | sed 's/_total$//' >"$DIR/$file.names"
	cmp -s "$DIR/open.names" "$DIR/$file.names" || fails "other metrics in $file"
	grep -q '^kiln_requests_total{op="permute",origin="compiled"} 1$' "$DIR/$file" ||
		fails "no permute in $file"
	grep -q '^kiln_compile_seconds_count{compiler="host"} 1$' "$DIR/$file" ||
		fails "no compile in $file"
	grep -qE "^kiln_session_device_seconds_total\{uid=\"$(id -u)\",session=\"weights\"\} 0\.0" \
		"$DIR/$file" || fails "no time in $file: $(grep session "$DIR/$file")"
	grep -q '^kiln_contradictions 0$' "$DIR/$file" || fails "contradictions"
done
json 'j["text"].endswith("# EOF\n")' "$KILN" metrics

# A path of its own, and addresses that are none.
"$KILND" --metrics=0.0.0.0:9464 2>"$DIR/err" && fails "it serves other hosts"
grep -q 'is not a port of this host alone' "$DIR/err" || fails "$(cat "$DIR/err")"
"$KILND" --socket "$DIR/second.sock" --cache-dir "$DIR/second" --device none \
	--metrics="$address" 2>"$DIR/err" && fails "two at one port"
grep -q "metrics $address: cannot listen there: address already in use" "$DIR/err" ||
	fails "$(cat "$DIR/err")"

have promtool || {
	echo "no promtool: the rest is left out"
	finish
}
promtool check metrics <"$DIR/plain" >"$DIR/out" 2>&1 || fails "$(cat "$DIR/out")"
[ ! -s "$DIR/out" ] || fails "promtool: $(cat "$DIR/out")"

# The rules as they are, by their own test, and then in a server that is quick.
promtool check rules "$monitoring/kiln-alerts.yml" >/dev/null || fails "check rules"
(cd "$monitoring" && promtool check config --syntax-only prometheus.yml >/dev/null) ||
	fails "check config"
mkdir "$PROM_DIR"
cp "$monitoring/kiln-alerts.yml" "$TOOLS/kiln-alerts-test.yml" "$PROM_DIR/"
promtool test rules "$PROM_DIR/kiln-alerts-test.yml" >"$DIR/out" 2>&1 || fails "$(cat "$DIR/out")"
have prometheus || finish
sed -e "s/127.0.0.1:9464/$address/" -e 's/15s/200ms/' "$monitoring/prometheus.yml" \
	>"$PROM_DIR/prometheus.yml"
port=$(python3 -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])')
prometheus --config.file "$PROM_DIR/prometheus.yml" --storage.tsdb.path "$PROM_DIR/data" \
	--web.listen-address "127.0.0.1:$port" >"$DIR/prometheus.log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null; wait "$server" 2>/dev/null; clean_up' EXIT
# A counter that rises must have been seen before.
tries=0
until [ "$("$KILN" metrics | grep -c 'kiln_process_faults_total{role="device"} 0')" = 1 ] &&
	python3 -c 'import json, sys, urllib.request
url = "http://127.0.0.1:%s/api/v1/query?query=count_over_time(kiln_device_up[1m])" % sys.argv[1]
found = json.load(urllib.request.urlopen(url, timeout=5))["data"]["result"]
sys.exit(not found or int(found[0]["value"][1]) < 2)' "$port" 2>/dev/null; do
	tries=$((tries + 1))
	[ $tries -lt 2000 ] || break
	sleep 0.1
done
[ $tries -lt 2000 ] || fails "nothing is scraped: $(tail -5 "$DIR/prometheus.log")"
"$KILN" debug kill executor >/dev/null || fails "kill"
"$KILN" debug fail-compile 1 >/dev/null || fails "fail-compile"
"$KILN" compile permute --shape 65x48 --perm 1,0 >/dev/null 2>&1 && fails "it compiles"
metrics firing "http://127.0.0.1:$port" KilnProcessLost KilnCompilesFail ||
	fails "$(tail -5 "$DIR/prometheus.log")"
finish
