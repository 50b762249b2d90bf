#!/bin/sh
# setup.sh: makes this machine able to build Kiln: finds what is missing by trying it, installs the
# Debian/Ubuntu packages, and puts NVRTC and the CUDA headers into build/cuda when there is no CUDA
# toolkit.  Used by examples/quickstart.sh and tests/run.sh; run again, it only looks.
# It must not know how Kiln is built.
#
#   sh scripts/setup.sh [--tests] [--torch] [--torch-old] [--no-cuda]
#
# --tests    what the tests need, too
# --torch    PyTorch and transformers in build/venv-torch, for tests (620 MB to fetch)
# --torch-old  the oldest PyTorch that is supported in build/venv-torch-old (770 MB to fetch)
# --no-cuda  leave NVRTC alone: the cpu device only
#
# Exit status: 0 ready, 1 something is missing and could not be installed (it says what to run),
# 2 usage.
set -u

root=$(cd "$(dirname "$0")/.." && pwd) || exit 1
cuda_dir=$root/build/cuda
torch_dir=$root/build/venv-torch
python_dir=$root/build/venv-python
want_tests=0
want_torch=0
want_old=0
want_cuda=1

say() {
	printf 'setup: %s\n' "$*"
}

usage() {
	sed -n 's/^# \{0,1\}//; 7,12p' "$0"
}

for option in "$@"; do
	case $option in
	--tests) want_tests=1 ;;
	--torch) want_torch=1 ;;
	--torch-old) want_old=1 ;;
	--no-cuda) want_cuda=0 ;;
	-h | --help)
		usage
		exit 0
		;;
	*)
		say "unknown option '$option'; known: --tests, --torch, --torch-old, --no-cuda" >&2
		exit 2
		;;
	esac
done

# ---- Looking -------------------------------------------------------------------------------------

have() {
	command -v "$1" >/dev/null 2>&1
}

# Does the C (or C++) compiler make programs?  A compiler without libc's headers is not one.
compiles() {
	have "$1" || return 1
	printf '#include <stdio.h>\nint main(void) { return puts("") < 0; }\n' |
		"$1" -x "$2" -fsyntax-only - >/dev/null 2>&1
}

library() {
	have pkg-config && pkg-config --exists "$@" 2>/dev/null
}

have_hiredis() {
	library 'hiredis >= 0.14'
}

have_python_headers() {
	have python3 && python3 -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' 2>/dev/null
}

cmake_version() {
	cmake --version 2>/dev/null | sed -n '1s/[^0-9]*\([0-9][0-9]*\.[0-9][0-9]*\).*/\1/p'
}

cmake_is_new_enough() {
	version=$(cmake_version)
	[ -n "$version" ] || return 1
	[ "${version%%.*}" -gt 3 ] || { [ "${version%%.*}" -eq 3 ] && [ "${version#*.}" -ge 25 ]; }
}

missing= # names for people
packages= # names for apt

need() {
	missing="$missing $1"
	shift
	packages="$packages $*"
}

# msgpack-c's C library has had three package names; apt knows one of them.
msgpack_package() {
	for name in libmsgpack-c-dev libmsgpack-dev; do
		if apt-cache show "$name" 2>/dev/null | grep -q '^Package:'; then
			echo "$name"
			return
		fi
	done
	echo libmsgpack-dev
}

look() {
	missing=
	packages=
	have cmake || need cmake cmake
	have ninja || have make || need ninja ninja-build
	compiles "${CC:-cc}" c || need "C-compiler" gcc libc6-dev
	compiles "${CXX:-c++}" c++ || need "C++-compiler" g++
	have pkg-config || need pkg-config pkg-config
	library 'libuv >= 1.43' || need libuv libuv1-dev
	library msgpack-c || library msgpack || need msgpack-c "$(msgpack_package)"
	library 'sqlite3 >= 3.37' || need sqlite3 libsqlite3-dev
	library libsodium || need libsodium libsodium-dev
	if [ $want_tests = 1 ]; then
		library cmocka || need cmocka libcmocka-dev
		have python3 || need python3 python3
		have_python_headers || need Python-headers python3-dev python3-venv
		have_hiredis || need hiredis libhiredis-dev
		have redis-server || need redis-server redis-server
		! have dpkg-deb || have lintian || need lintian lintian
	fi
}

# ---- Installing ----------------------------------------------------------------------------------

# The words that make apt-get root's: nothing for root, sudo where it asks no password.
privilege() {
	if [ "$(id -u)" = 0 ]; then
		echo env
	elif have sudo && sudo -n true 2>/dev/null; then
		echo "sudo -n env"
	else
		return 1
	fi
}

apt_lists_are_there() {
	apt-cache show libuv1-dev 2>/dev/null | grep -q '^Package:'
}

apt() {
	$as_root DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=2 \
		-o Acquire::http::Timeout=60 -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 "$@" >"$log" 2>&1
}

# apt_install PACKAGE...: 0 when installed; otherwise one sentence was printed.
apt_install() {
	if ! have apt-get; then
		say "this is no Debian or Ubuntu: install the equivalents of: $*"
		return 1
	fi
	if ! as_root=$(privilege); then
		say "not root and no password-less sudo. Run this, then start again:"
		say "  sudo apt-get update && sudo apt-get install -y --no-install-recommends $*"
		return 1
	fi
	mkdir -p "$root/build" || return 1
	log=$root/build/setup-apt.log
	if ! apt_lists_are_there; then
		say "fetching the package lists (apt-get update)"
		apt update || say "apt-get update reported errors; see $log"
	fi
	# Only now does apt know which name msgpack-c has here.
	set -- $(echo "$*" | sed "s/libmsgpack[a-z-]*/$(msgpack_package)/")
	say "installing $# packages: $*"
	if apt install -y --no-install-recommends "$@"; then
		return 0
	fi
	say "fetching the package lists again (apt-get update), then a second try"
	apt update
	apt install -y --no-install-recommends "$@" && return 0
	say "apt-get could not install $*; its last words (all in $log):"
	tail -n 5 "$log"
	return 1
}

say "looking for compilers, CMake and libraries"
look
if [ -n "$packages" ]; then
	say "missing:$missing"
	# Word splitting is meant: a list of package names.
	# shellcheck disable=SC2086
	apt_install $packages || exit 1
	look
	if [ -n "$packages" ]; then
		say "still missing after the installation:$missing"
		exit 1
	fi
fi
# Optional: kilnd says at its start what it cannot enforce without it.
library 'libseccomp >= 2.4' || apt_install libseccomp-dev ||
	say "libseccomp is missing: what compilers and kernels may ask of the system is not filtered"
# kilnd can do without it.
have_hiredis || apt_install libhiredis-dev ||
	say "hiredis is missing: kilnd is built without the second cache tier (--remote)"
# One test is skipped without it.
if [ $want_tests = 1 ] && ! have strace; then
	apt_install strace || say "strace is missing: the test that watches system calls is skipped"
fi
# One test is mostly left out without it.
if [ $want_tests = 1 ] && ! { have prometheus && have promtool; }; then
	apt_install prometheus || say "prometheus is missing: it scrapes no metrics"
fi
# Tests leave out what is not here: completion is tried in these shells, and mandoc reads manuals.
for shell in zsh fish mandoc; do
	if [ $want_tests = 1 ] && ! have $shell; then
		apt_install $shell || say "$shell is missing: it is not tried"
	fi
done
# One test compares the kernels of all compilers that are here.  Of a package that it does not know
# apt would take the name for a pattern, because of the "+".
add_compiler() {
	compiles "$1" c++ && return
	if apt-cache pkgnames "$2" 2>/dev/null | grep -qxF "$2"; then
		apt_install "$2" || say "$1 is missing: kernels are compared without it"
	else
		say "this system has no package $2: kernels are compared without $1"
	fi
}
if [ $want_tests = 1 ]; then
	add_compiler g++-12 g++-12
	add_compiler g++-13 g++-13
	add_compiler g++-14 g++-14
	add_compiler clang++ clang
fi
if ! cmake_is_new_enough; then
	say "cmake is $(cmake_version) and 3.25 or newer is needed; Debian 12 and Ubuntu 24.04 have it"
	exit 1
fi
say "compilers, CMake $(cmake_version) and libraries are there"

# ---- PyTorch -------------------------------------------------------------------------------------

# locked FILE: 0 when this set-up alone has build/FILE, until it ends.
locked() {
	mkdir -p "$root/build" || exit 1
	have flock || return 0
	exec 9>"$root/build/$1"
	flock -w 900 9
}

# Python compiles what it imports, and keeps that.  pip would compile all that it installs, of
# which the tests import a tenth.
first_import() {
	env -u PYTHONDONTWRITEBYTECODE "$1/bin/python" -c "$2"
}

# torch_stamp LIST: an environment's versions, and its Python's.  The stamp is written last.
torch_stamp() {
	cat "$root/tests/torch/$1" && python3 -c 'import sys; print(sys.version_info)'
}

# torch_is_whole DIRECTORY LIST
torch_is_whole() {
	[ -x "$1/bin/python" ] && torch_stamp "$2" | cmp -s - "$1/stamp"
}

# make_torch DIRECTORY LIST: a virtual environment remembers where it lies, so it is made in place.
make_torch() {
	rm -rf "$1"
	python3 -m venv "$1" || { rm -rf "$1" && apt_install python3-venv &&
		python3 -m venv "$1"; } || return 1
	timeout 1800 "$1/bin/python" -m pip install --disable-pip-version-check --no-deps --no-compile \
		--only-binary :all: --timeout 60 --requirement "tests/torch/$2" || return 1
	# torch.compile() imports as much again as torch, and so do the tests of PyTorch's own samples,
	# of the newest alone.  One process imports all: each would begin with torch itself.
	samples=sys
	[ "$2" != requirements.txt ] || samples=torch.testing._internal.common_methods_invocations
	"$1/bin/python" tests/torch/absent.py && first_import "$1" "import contextlib, torch
with contextlib.suppress(Exception):
	torch.compile(torch.sin, backend='aot_eager')(torch.ones(2))
	import $samples" || return 1
	torch_stamp "$2" >"$1/stamp"
}

# Some tests are skipped without it.
add_transformers() {
	list=tests/python/requirements-transformers.txt
	cmp -s $list "$torch_dir/transformers-stamp" && return
	say "fetching transformers with pip (20 MB) into build/venv-torch"
	timeout 600 "$torch_dir/bin/python" -m pip install --quiet --disable-pip-version-check \
		--no-deps --no-compile --only-binary :all: --timeout 60 --requirement $list &&
		first_import "$torch_dir" 'from transformers import BertForMaskedLM, LlamaForCausalLM' &&
		cp $list "$torch_dir/transformers-stamp" ||
		say "transformers could not be fetched: the tests of kiln.patch on its models are skipped"
}

if [ $want_torch = 1 ]; then
	cd "$root" || exit 1
	locked .torch.lock || {
		say "another set-up has held build/.torch.lock for 15 minutes"
		exit 1
	}
	if ! torch_is_whole "$torch_dir" requirements.txt; then
		say "fetching PyTorch with pip (600 MB) into build/venv-torch (1.5 GB)"
		make_torch "$torch_dir" requirements.txt || {
			say "PyTorch could not be put into build/venv-torch: see above"
			exit 1
		}
	fi
	add_transformers
	exec 9>&-
	say "PyTorch: build/venv-torch, $(sed -n 's/^torch==//p' "$torch_dir/stamp")"
fi

# Its tests are skipped without it.
if [ $want_old = 1 ] && cd "$root" && locked .torch.lock; then
	if torch_is_whole "$torch_dir-old" requirements-old.txt; then
		say "PyTorch: build/venv-torch-old, $(sed -n 's/^torch==//p' "$torch_dir-old/stamp")"
	else
		say "fetching an older PyTorch with pip (770 MB) into build/venv-torch-old (1.8 GB)"
		make_torch "$torch_dir-old" requirements-old.txt ||
			say "the older PyTorch could not be fetched: its tests are skipped"
	fi
	exec 9>&-
fi

# ---- NumPy, for the tests of the Python package --------------------------------------------------

# The interpreter python3.N: on PATH, or where pyenv keeps its own.  A shim of pyenv is there for
# versions that it does not run, too.
interpreter() {
	pyenv=${PYENV_ROOT:-${HOME:-}/.pyenv}
	for file in "$(command -v "python$1")" "$pyenv/versions/$1".*/bin/"python$1"; do
		[ -x "$file" ] && "$file" -c 'import venv, ensurepip' 2>/dev/null && echo "$file" && return
	done
	return 1
}

python_stamp() {
	cat "$root/tests/python/requirements.txt" && "$1" -c 'import sys; print(sys.version_info)'
}

# make_python PYTHON DIRECTORY: an environment with NumPy, if it is not there.
make_python() {
	[ -f "$2/stamp" ] && python_stamp "$1" | cmp -s - "$2/stamp" && return
	say "fetching NumPy with pip (20 MB) into ${2#"$root"/}"
	rm -rf "$2"
	"$1" -m venv "$2" || { rm -rf "$2" && apt_install python3-venv && "$1" -m venv "$2"; } ||
		return 1
	timeout 600 "$2/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile \
		--only-binary :all: --timeout 60 --requirement "$root/tests/python/requirements.txt" &&
		first_import "$2" 'import numpy.testing, unittest' || return 1
	python_stamp "$1" >"$2/stamp"
}

if [ $want_tests = 1 ] && locked .python.lock; then
	{ make_python python3 "$python_dir" ||
		say "NumPy could not be fetched: the tests of the Python package are skipped"; } &
	# The oldest and the newest for which the package is made.
	for version in 3.10 3.13; do
		if file=$(interpreter $version); then
			{ make_python "$file" "$python_dir-$version" ||
				say "NumPy could not be fetched for CPython $version: its tests are skipped"; } &
		else
			say "there is no CPython $version: the package is not tested with it"
		fi
	done
	wait
	# Traces are not read without it.
	if [ -x "$python_dir/bin/python" ] &&
		! cmp -s "$root/tests/cli/requirements.txt" "$python_dir/perfetto-stamp"; then
		timeout 600 "$python_dir/bin/python" -m pip install --quiet --disable-pip-version-check \
			--no-deps --only-binary :all: --timeout 60 \
			--requirement "$root/tests/cli/requirements.txt" &&
			cp "$root/tests/cli/requirements.txt" "$python_dir/perfetto-stamp" ||
			say "Perfetto could not be fetched: traces are not read by the tests"
	fi
	exec 9>&-
fi

# ---- NVRTC and the CUDA headers ------------------------------------------------------------------

# Do the headers of CUDA 12 or newer lie in this directory?
headers() {
	[ -f "$1/nvrtc.h" ] && grep -qE '^#define CUDA_VERSION (1[2-9]|[2-9][0-9])[0-9]{3}' "$1/cuda.h"
}

# Prints the directory of a toolkit with headers and libnvrtc.
toolkit() {
	for dir in "${CUDA_HOME:-}" /usr/local/cuda /usr/local/cuda-*; do
		[ -n "$dir" ] && headers "$dir/include" 2>/dev/null || continue
		for file in "$dir"/lib64/libnvrtc.so* "$dir"/lib/libnvrtc.so* \
			"$dir"/targets/*/lib/libnvrtc.so*; do
			[ -e "$file" ] && echo "$dir" && return 0
		done
	done
	headers /usr/include 2>/dev/null || return 1
	for file in /usr/lib/*/libnvrtc.so* /usr/lib/libnvrtc.so* /usr/lib64/libnvrtc.so*; do
		[ -e "$file" ] && echo /usr && return 0
	done
	return 1
}

# Is what lies in a directory whole?  The stamp is written last; the files are checked all the same.
cuda_is_whole() {
	[ -f "$1/stamp" ] && [ -s "$1/include/cuda.h" ] && [ -s "$1/include/nvrtc.h" ] || return 1
	for file in "$1"/lib/libnvrtc.so.*; do
		[ -s "$file" ] || return 1
	done
	for file in "$1"/lib/libnvrtc-builtins.so.*; do
		[ -s "$file" ] || return 1
	done
}

pip_works() {
	have python3 && python3 -m pip --version >/dev/null 2>&1
}

# The wheels of CUDA 13, flattened: include/ and lib/.  Made aside and moved into place whole, so
# that an interrupted download leaves nothing that looks finished.
fetch_wheels() {
	part=$cuda_dir.part
	rm -rf "$part" "$cuda_dir"
	mkdir -p "$part/wheels" "$part/tree" "$part/out/lib" || return 1
	timeout 900 python3 -m pip download --quiet --disable-pip-version-check --no-deps \
		--only-binary :all: --timeout 60 --dest "$part/wheels" \
		'nvidia-cuda-nvrtc>=13,<14' 'nvidia-cuda-runtime>=13,<14' \
		'nvidia-cuda-crt>=13,<14' 'nvidia-cuda-cccl>=13,<14' >"$part/log" 2>&1 || return 1
	for wheel in "$part"/wheels/*.whl; do
		python3 -m zipfile -e "$wheel" "$part/tree" >>"$part/log" 2>&1 || return 1
	done
	cp -R "$part"/tree/nvidia/*/include "$part/out/" &&
		cp "$part"/tree/nvidia/*/lib/libnvrtc*.so.* "$part/out/lib/" || return 1
	(cd "$part/wheels" && ls ./*.whl) | sed 's/^\.\///' >"$part/out/stamp" || return 1
	cuda_is_whole "$part/out" || return 1
	mv "$part/out" "$cuda_dir" && rm -rf "$part"
}

without_cuda() {
	say "$1"
	say "going on with the cpu device alone: no cubins are made and no GPU is used"
	exit 0
}

if [ $want_cuda = 0 ]; then
	without_cuda "leaving NVRTC and the CUDA headers alone, as asked"
fi
if dir=$(toolkit); then
	say "NVRTC and the CUDA headers: toolkit in $dir"
	exit 0
fi
if cuda_is_whole "$cuda_dir"; then
	version=$(sed -n 's/^nvidia_cuda_nvrtc-\([0-9.]*\)-.*/\1/p' "$cuda_dir/stamp")
	say "NVRTC and the CUDA headers: build/cuda, $version"
	exit 0
fi
locked .cuda.lock || without_cuda "another set-up has held build/.cuda.lock for 15 minutes"
if cuda_is_whole "$cuda_dir"; then
	say "NVRTC and the CUDA headers: build/cuda, just fetched by another set-up"
	exit 0
fi
if ! pip_works; then
	say "no CUDA toolkit, and python3 has no pip to fetch NVRTC with"
	apt_install python3-pip ca-certificates || true
fi
pip_works || without_cuda "NVRTC cannot be fetched: python3 -m pip does not run"
say "no CUDA toolkit: fetching NVRTC and the CUDA headers with pip (65 MB) into build/cuda"
if fetch_wheels; then
	say "NVRTC and the CUDA headers: build/cuda, $(du -sm "$cuda_dir" | cut -f1) MB"
	exit 0
fi
[ -s "$cuda_dir.part/log" ] && tail -n 3 "$cuda_dir.part/log"
without_cuda "NVRTC could not be fetched; run again to try again, or set CUDA_HOME to a toolkit"
