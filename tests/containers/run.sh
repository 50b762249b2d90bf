#!/bin/sh
# run.sh: builds the Containerfile, runs the pods of daemonset.yaml with podman, as they are but for
# the node's GPU, and uses the daemon from other containers and from outside.
# Needs root, podman, catatonit, crun or runc, debootstrap, python3 with venv and the network.
#
#   sh tests/containers/run.sh
#
# The image's base is a Debian that debootstrap makes once, in build/containers (700 MB): it has a
# C++ compiler, so device cpu serves.  Images lie there, too, until the end; nothing of the host's
# own containers is touched.
#
# Exit status: 0 all is right, 1 something is not, 77 this machine cannot do it (it says why).
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/build/containers
tree=$root/build/portable-tree
packaging=$root/scripts/packaging
for tool in podman catatonit debootstrap setpriv; do
	command -v $tool >/dev/null 2>&1 || {
		echo "there is no $tool here"
		exit 77
	}
done
[ "$(id -u)" = 0 ] || {
	echo "only root may make containers here"
	exit 77
}
[ -x "$tree/bin/kilnd" ] && [ -x "$tree/bin/gpu_apart" ] || sh "$root/scripts/portable.sh"
rm -rf "$here/store"
mkdir -p "$here/store"

if ! [ -e "$here/debian/.ready" ]; then
	rm -rf "$here/debian"
	debootstrap --variant=minbase --include=g++ bookworm "$here/debian" \
		>"$here/debian.log" 2>&1 || {
		tail -n 3 "$here/debian.log"
		echo "debootstrap could not make a Debian"
		exit 77
	}
	: >"$here/debian/.ready"
fi
if ! [ -x "$here/venv/bin/python" ] || ! "$here/venv/bin/python" -c 'import kubernetes, yaml'; then
	python3 -m venv "$here/venv"
	"$here/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
		kubernetes pyyaml || {
		echo "pip could not install Kubernetes's definitions"
		exit 77
	}
fi

tmp=$(mktemp -d /tmp/kiln-containers.XXXXXX)
# Without CAP_SYS_RESOURCE a runtime may set no limit but those that there are.
files=$(ulimit -Hn)
runtime=crun
! command -v runc >/dev/null 2>&1 || runtime=runc
cat >"$tmp/containers.conf" <<END
[containers]
default_ulimits = ["nofile=$files:$files", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "$runtime"
END
export CONTAINERS_CONF="$tmp/containers.conf"

pods() {
	timeout 120 podman --root "$here/store/images" --runroot "$here/store/run" "$@"
}
clean_up() {
	status=$?
	trap - EXIT INT TERM
	[ $status = 0 ] || pods logs kilnd-kilnd 2>&1 | tail -n 20 || true
	pods pod rm --all --force >/dev/null 2>&1 || true
	rm -rf "$tmp" "$here/store"
	exit $status
}
trap clean_up EXIT
trap 'exit 1' INT TERM
fail() {
	echo "run.sh: $*" >&2
	exit 1
}
yaml() {
	"$here/venv/bin/python" "$root/tests/containers/pods.py" "$@"
}
# play NAME COMMAND...: starts a pod of the file, with another command if there is one.
play() {
	yaml pod "$packaging/daemonset.yaml" "$tmp/node" "$@" >"$tmp/$1.json"
	pods kube play --network none "$tmp/$1.json" >"$tmp/said" 2>&1 || {
		cat "$tmp/said"
		fail "the pod $1 does not start"
	}
}
# said NAME: waits for the end of a client's pod; prints what it printed, with its exit status.
said() {
	status=$(pods wait "$1-client")
	pods logs "$1-client" 2>&1
	pods pod rm --force "$1" >/dev/null 2>&1
	return "$status"
}

yaml check "$packaging/daemonset.yaml" "$packaging/Containerfile" || fail "daemonset.yaml"

# ---- The image ----
tar -C "$here/debian" -c . | pods import --quiet - localhost/kiln-base >"$tmp/said" 2>&1 ||
	fail "$(cat "$tmp/said")"
pods run --rm --network none localhost/kiln-base true >"$tmp/said" 2>&1 || {
	cat "$tmp/said"
	echo "podman cannot run a container here"
	exit 77
}
pods build --isolation chroot --quiet --file "$packaging/Containerfile" \
	--build-arg BASE=localhost/kiln-base --tag kiln:0.1.0 "$tree" >/dev/null
echo "the image: $(pods image inspect --format '{{.Size}} bytes, user {{.User}}' kiln:0.1.0)"

# ---- The daemon's pod ----
mkdir "$tmp/node"
chmod 755 "$tmp" "$tmp/node"
play kilnd
socket=$tmp/node/run/kiln/kiln.sock
tries=0
until pods exec kilnd-kilnd kiln status >"$tmp/status" 2>&1; do
	tries=$((tries + 1))
	[ $tries -lt 100 ] || fail "not ready: $(cat "$tmp/status")"
	sleep 0.1
done
[ "$(stat -c '%a %u %g' "$socket")" = "660 1200 1200" ] || fail "the socket: $(stat "$socket")"
[ "$(stat -c '%a %u' "$tmp/node/var/cache/kiln")" = "700 1200" ] || fail "the cache is open"
pods exec kilnd-kilnd grep -q '^CapEff:	0000000000000000$' /proc/1/status || fail "capabilities"
pods exec kilnd-kilnd grep -q '^Seccomp:	2$' /proc/1/status || fail "no seccomp"
pods exec kilnd-kilnd sh -c ': >/here' 2>/dev/null && fail "it may write to its image"
echo "the daemon's pod is ready"

# ---- Clients ----
# outside GROUP COMMAND...: by the node's own user 1000.
outside() {
	group=$1
	shift
	setpriv --reuid 1000 --regid 1000 --groups "$group" env KILN_SOCKET="$socket" "$@"
}
cp -R "$tree/bin" "$tree/lib" "$tmp/node/"
outside 1200 "$tmp/node/bin/kiln" run permute --shape 64x48 --perm 1,0 >"$tmp/said" 2>&1 ||
	fail "$(cat "$tmp/said")"
grep verified "$tmp/said"
outside 1000 "$tmp/node/bin/kiln" status >"$tmp/said" 2>&1 && fail "another group is let in"
echo "refused: $(cat "$tmp/said")"
play kiln-client
said kiln-client >"$tmp/said" || fail "$(cat "$tmp/said")"
grep verified "$tmp/said" || fail "the client's pod: $(cat "$tmp/said")"
play kiln-client /node/bin/gpu_apart --device cpu
said kiln-client >"$tmp/said" || fail "$(cat "$tmp/said")"
grep '^gpu_apart: [0-9]* passed, 0 failed' "$tmp/said" || fail "$(cat "$tmp/said")"

# ---- Its end ----
pods exec kilnd-kilnd kiln status | grep sandbox -A 2
pods pod stop --time 30 kilnd >/dev/null
[ "$(pods wait kilnd-kilnd)" = 0 ] || fail "kilnd ended with $(pods wait kilnd-kilnd)"
[ ! -e "$socket" ] || fail "it leaves its socket behind"
[ -s "$tmp/node/var/cache/kiln/kiln.db" ] || fail "the node has no cache"
echo "run.sh: all is right"
