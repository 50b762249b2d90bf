#!/bin/sh
# run.sh: installs the packages in a Debian of its own, under a running systemd, and uses them as
# two users: who may connect, upgrade with a client connected, units of a user, removal.
# Needs root, debootstrap and systemd-nspawn; nothing of the host's own system is touched.
#
#   sh tests/packages/run.sh [DIRECTORY]
#
# DIRECTORY has the packages of scripts/packages.sh; default build/packages/out.  The Debian is
# made in build/packages-root by debootstrap once (300 MB), and each run has a copy in memory.
#
# Exit status: 0 all is right, 1 something is not, 77 this machine cannot do it (it says why).
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
debs=$(cd "${1:-$root/build/packages/out}" && pwd)
system=$root/build/packages-root
for tool in systemd-nspawn nsenter dpkg-deb; do
	command -v $tool >/dev/null 2>&1 || {
		echo "there is no $tool here"
		exit 77
	}
done
[ "$(id -u)" = 0 ] || {
	echo "only root may boot a system"
	exit 77
}
if ! [ -e "$system/.ready" ]; then
	command -v debootstrap >/dev/null 2>&1 || {
		echo "there is no debootstrap here"
		exit 77
	}
	rm -rf "$system"
	list=systemd,systemd-sysv,libpam-systemd,dbus,dbus-user-session,python3,g++,libuv1,libsqlite3-0
	list=$list,libmsgpackc2,libsodium23,libhiredis0.14,libseccomp2
	debootstrap --variant=minbase --include=$list bookworm "$system" \
		>"$root/build/packages-root.log" 2>&1 || {
		tail -n 3 "$root/build/packages-root.log"
		echo "debootstrap could not make a Debian"
		exit 77
	}
	: >"$system/.ready"
fi

tmp=$(mktemp -d /tmp/kiln-nspawn.XXXXXX)
container=
clean_up() {
	status=$?
	trap - EXIT INT TERM
	if [ -n "$container" ]; then
		[ $status = 0 ] || in_system 'journalctl --no-pager -n 40 -u kilnd.service' || true
		kill -TERM "$container" 2>/dev/null || true
		wait "$container" 2>/dev/null || true
	fi
	rm -rf "$tmp"
	exit $status
}
trap clean_up EXIT
trap 'exit 1' INT TERM

# ---- The packages, and their like of a release before ----
mkdir "$tmp/debs" "$tmp/debs/old"
cp "$debs"/*.deb "$root/tests/packages/stay.c" "$tmp/debs/"
for deb in "$tmp"/debs/*.deb; do
	dpkg-deb -R "$deb" "$tmp/part"
	sed -i -E 's/^Version: .*/Version: 0.0.9/; s/(libkiln0) \(= [0-9.]*\)/\1 (= 0.0.9)/' \
		"$tmp/part/DEBIAN/control"
	dpkg-deb -Znone -b "$tmp/part" "$tmp/debs/old" >/dev/null
	rm -rf "$tmp/part"
done

# ---- A system that runs ----
# The system calls by which kilnd confines its children must be allowed in here.
systemd-nspawn --quiet --register=no --keep-unit --boot --directory="$system" \
	--volatile=overlay --private-network --bind-ro="$tmp/debs:/debs" --machine=kiln-packages \
	--system-call-filter="landlock_create_ruleset landlock_add_rule landlock_restrict_self" \
	</dev/null >"$tmp/console.log" 2>&1 &
container=$!

leader() {
	cat "/proc/$container/task/$container/children" 2>/dev/null | tr ' ' '\n' | head -n 1
}
# in_system COMMANDS: as root of the system, by a shell.
in_system() {
	nsenter --target "$(leader)" --all --wdns=/ env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \
		LC_ALL=C.UTF-8 sh -euc "$1" </dev/null
}
# as USER COMMANDS
as() {
	in_system "exec runuser -u $1 -- env KILN_SOCKET=$socket sh -euc '$2'"
}
# wait_for SENTENCE COMMANDS: until these succeed
wait_for() {
	tries=0
	until in_system "$2" >/dev/null 2>&1; do
		tries=$((tries + 1))
		if [ $tries -gt 300 ] || ! kill -0 $container 2>/dev/null; then
			echo "$1" >&2
			return 1
		fi
		sleep 0.2
	done
}
socket=/run/kiln/kiln.sock
wait_for "systemd does not come up in a container of this machine" '
	systemctl is-system-running | grep -qE "running|degraded"' || {
	tail -n 5 "$tmp/console.log"
	exit 77
}
echo "systemd runs: $(in_system 'systemctl --version | head -n 1')"

fail() {
	echo "run.sh: $*" >&2
	exit 1
}
pid_of() {
	in_system 'systemctl show -P MainPID kilnd.service'
}
# install FOLDER: with what dpkg says
install() {
	in_system "dpkg -i $1/*.deb" >"$tmp/dpkg" 2>&1 || {
		cat "$tmp/dpkg"
		fail "the packages cannot be installed"
	}
}

# ---- Installed: who may connect ----
install /debs/old
in_system '
	for user in alice bob carol; do useradd -m $user; done
	usermod -aG kiln alice
	usermod -aG kiln carol
	systemctl --quiet is-active kilnd.socket
	systemctl --quiet is-enabled kilnd.socket' || fail "the socket is not enabled"
[ "$(in_system "stat -c '%a %U %G' $socket")" = "660 kiln kiln" ] || fail "another mode"
in_system 'systemctl --quiet is-active kilnd.service' && fail "kilnd runs before anybody asks"
as alice 'kiln run softmax --shape 8x16' | grep verified || fail "a member is not served"
as carol 'kiln run permute --shape 4x6 --perm 1,0' | grep verified || fail "nor a second one"
if as bob 'kiln status' >"$tmp/bob" 2>&1; then
	fail "one who is not in the group got in"
fi
echo "refused: $(cat "$tmp/bob")"
[ "$(in_system "stat -c %U /proc/$(pid_of)")" = kiln ] || fail "kilnd runs as another user"
in_system "kiln --socket $socket status" | grep '^sandbox *require' || fail "the sandbox is open"
[ "$(in_system 'stat -c "%a %U" /var/cache/kiln')" = "700 kiln" ] || fail "the cache is open"
in_system 'systemd-analyze security kilnd.service --threshold=20 --no-pager' | tail -n 1

# ---- Upgrade while a client is connected ----
in_system 'cc /debs/stay.c -lkiln -o /usr/bin/stay; install -d -o carol /run/carol'
as carol 'cd /run/carol; stay stop count >said 2>&1 & echo $! >pid'
wait_for "the client does not begin" '[ -s /run/carol/count ]' ||
	fail "$(in_system 'cat /run/carol/*')"
before=$(pid_of)
install /debs
grep 'serves clients' "$tmp/dpkg" || fail "the upgrade does not say that the daemon goes on"
[ "$(pid_of)" = "$before" ] || fail "the upgrade ended a daemon that served a client"
count=$(in_system 'cat /run/carol/count')
wait_for "the client stands still" "[ \$(cat /run/carol/count) -gt $((count + 20)) ]" ||
	fail "$(in_system 'cat /run/carol/*')"
in_system "kiln --socket $socket status" | grep '^program' || fail "status does not say it"
as alice 'kiln run softmax --shape 8x17' | grep -q verified || fail "a new client is not served"
in_system "kiln --socket $socket stop --if-idle" 2>&1 && fail "a busy daemon was stopped"
in_system 'touch /run/carol/stop'
wait_for "the client does not end" '! kill -0 $(cat /run/carol/pid)' || fail "it goes on"
[ -z "$(in_system 'cat /run/carol/said')" ] || fail "$(in_system 'cat /run/carol/said')"
in_system "kiln --socket $socket stop --if-idle" || fail "an idle daemon is not stopped"
as alice 'kiln run softmax --shape 8x16' | grep -q verified || fail "the new one does not serve"
[ "$(pid_of)" != "$before" ] || fail "the old daemon is still there"
echo "upgraded with a client connected, which had $count right answers before and went on"

# ---- A daemon of a user's own ----
in_system 'loginctl enable-linger bob'
user='runuser -u bob -- env XDG_RUNTIME_DIR=/run/user/$(id -u bob)'
wait_for "bob has no systemd" \
	"$user systemctl --user is-system-running | grep -qE 'running|degraded'" || fail "no user units"
in_system "$user systemctl --user enable --now kilnd.socket" 2>/dev/null
in_system "$user kiln run softmax --shape 8x16" | grep -q verified || fail "bob is not served"
in_system "$user systemctl --user --quiet is-active kilnd.service" || fail "it is not systemd's"
echo "a user's own daemon serves"

# ---- Python, and removal ----
in_system 'python3 -m kiln info' | grep '^kilnd' || fail "the Python package does not load"
in_system 'dpkg --purge python3-kiln libkiln-dev kiln libkiln0' >"$tmp/dpkg" 2>&1 || {
	cat "$tmp/dpkg"
	fail "purging failed"
}
in_system '! [ -e /run/kiln/kiln.sock ] && ! [ -e /var/cache/kiln ] && ! [ -e /usr/bin/kilnd ]' ||
	fail "purging leaves files"
echo "run.sh: all is right"
