#!/bin/sh
# packages.sh: CPack makes packages of this build, in which lintian finds nothing that is not
# explained; the system's service is as closed as it says; its files are where systemd looks.
# tests/packages/run.sh installs them under a running systemd.
set -eu

source_dir=${SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
build=${BUILD_DIR:?BUILD_DIR names the build to pack}
for tool in cpack dpkg-deb dpkg-shlibdeps file; do
	command -v $tool >/dev/null 2>&1 || {
		echo "there is no $tool here"
		exit 77
	}
done
[ -z "${KILN_SANITIZE:-}" ] || {
	echo "a build with sanitizers is not packed"
	exit 77
}
tmp=$(mktemp -d /tmp/kiln-packages.XXXXXX)
clean_up() {
	status=$?
	trap - EXIT INT TERM
	[ $status = 0 ] || cat "$tmp"/*.log 2>/dev/null || true
	rm -rf "$tmp"
	exit $status
}
trap clean_up EXIT
trap 'exit 1' INT TERM

cpack -G DEB --config "$build/CPackConfig.cmake" -B "$tmp/pack" >"$tmp/cpack.log" 2>&1
for name in kiln libkiln0 libkiln-dev python3-kiln; do
	set -- "$tmp/pack/$name"_*.deb
	if [ -f "$1" ]; then
		dpkg-deb -x "$1" "$tmp/root"
	elif [ $name != python3-kiln ]; then
		echo "there is no package $name"
		exit 1
	fi
done
for file in bin/kiln bin/kilnd lib/systemd/system/kilnd.socket lib/systemd/system/kilnd.service \
	lib/sysusers.d/kiln.conf lib/tmpfiles.d/kiln.conf share/systemd/user/kilnd.service \
	share/doc/kiln/docs/operations.md share/doc/kiln/THIRD_PARTY.md include/kiln/kiln.h \
	share/doc/kiln/examples/permute.c share/man/man8/kilnd.8.gz; do
	[ -s "$tmp/root/usr/$file" ] || {
		echo "no package has $file"
		exit 1
	}
done
if grep -rlE 'BEGIN .*PRIVATE|secret' "$tmp/root/usr/share" --include=*.key | grep .; then
	echo "a package has a key"
	exit 1
fi

# Flags of a build for daily work are not those of scripts/packages.sh.
if command -v lintian >/dev/null 2>&1; then
	lintian --allow-root --fail-on error,warning --tag-display-limit 0 --suppress-tags \
		pkg-config-unavailable-for-cross-compilation,hardening-no-fortify-functions \
		"$tmp"/pack/*.deb >"$tmp/lintian.log" 2>&1
	echo "lintian: nothing"
else
	echo "lintian: not here"
fi

# systemd-analyze wants a program that is there.
if command -v systemd-analyze >/dev/null 2>&1; then
	sed 's|^ExecStart=.*|ExecStart=/bin/true|' "$tmp/root/usr/lib/systemd/system/kilnd.service" \
		>"$tmp/kilnd.service"
	systemd-analyze security --offline=yes --threshold=20 "$tmp/kilnd.service" \
		>"$tmp/security.log" 2>&1
	tail -n 1 "$tmp/security.log" | grep -o 'exposure level.*: [0-9.]*'
else
	echo "systemd-analyze: not here"
fi
grep -q '^Documentation=' "$tmp/root/usr/lib/systemd/system/kilnd.service"
grep -q '^Documentation=' "$tmp/root/usr/share/systemd/user/kilnd.socket"
echo "the packages are right"
