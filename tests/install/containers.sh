#!/bin/sh
# containers.sh: daemonset.yaml is what it says of itself, and what the Containerfile says.
# tests/containers/run.sh runs it.
set -eu

source_dir=${SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
python3 -c 'import yaml' 2>/dev/null || {
	echo "python3 has no yaml here"
	exit 77
}
cd "$source_dir"
pods() {
	python3 tests/containers/pods.py check "$1" scripts/packaging/Containerfile
}
pods scripts/packaging/daemonset.yaml

# The check must find each of these changes.
tmp=$(mktemp -d /tmp/kiln-containers.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/scripts/packaging"
cp CMakeLists.txt "$tmp/"
broken=$tmp/scripts/packaging/daemonset.yaml
for change in 's/hostIPC: false/hostIPC: true/' 's/runAsUser: 1200/runAsUser: 0/' \
	's/kiln:0/kiln:9/' 's/supplementalGroups: \[1200\]/supplementalGroups: [12]/' \
	's/readOnlyRootFilesystem: true/readOnlyRootFilesystem: false/' \
	's,mountPath: /run/kiln,mountPath: /run/other,'; do
	sed "$change" scripts/packaging/daemonset.yaml >"$broken"
	if cmp -s "$broken" scripts/packaging/daemonset.yaml || pods "$broken" >/dev/null; then
		echo "nobody sees $change"
		exit 1
	fi
done
