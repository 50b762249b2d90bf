#!/bin/sh
# run.sh: sets up, builds, and runs every test that this machine can run.
# It must not know any single test: CTest's labels are all it names.
#
#   sh tests/run.sh [--quick | --gpu] [--torch] [--all]
#
# --quick  the inner loop: dev preset, labels unit, lint and cli
# --gpu    insists on a GPU: runs tests/gpu/run.sh besides, and fails where there is none
# --torch  fetches PyTorch if it is not there, and the oldest that is supported (scripts/setup.sh);
#          the tests that compare with it run wherever it is
# --all    every case of the operators, of which otherwise the first of every other dtype and a
#          twelfth of the rest are compiled, every kernel by every compiler, and in the dev preset
#          what the asan preset runs as it is
#
# Exit status: 0 when nothing failed, 1 when something did, 2 usage.
set -u

root=$(cd "$(dirname "$0")/.." && pwd) || exit 1
cd "$root" || exit 1
quick=0
gpu=0
torch=
failed=
# A label says what no preset needs to run twice, and what a sanitizer cannot see through, or has
# nothing to see in.
dev_left_out='^(bench|sanitized)$'
dev_reason='the asan preset runs them as they are; with --all this one does as well'
asan_left_out='^kernels$'
asan_reason='kernels are compiled without it; the dev preset runs them'
tsan_left_out='^(kernels|one-thread|threads-seen)$'
tsan_reason='as above; one thread, or threads that other tests see as well; asan runs those'
# Two thirds of the tests wait for something most of the time, and more of those with sanitizers.
at_once=$((3 * $(nproc 2>/dev/null || echo 2)))
at_once_sanitized=$((4 * $(nproc 2>/dev/null || echo 2)))

for option in "$@"; do
	case $option in
	--quick) quick=1 ;;
	--gpu) gpu=1 ;;
	--torch) torch=1 ;;
	--all)
		export KILN_TEST_ALL=1
		dev_left_out='^bench$'
		;;
	-h | --help)
		sed -n 's/^# \{0,1\}//; 5,15p' "$0"
		exit 0
		;;
	*)
		echo "run.sh: unknown option '$option'; known: --quick, --gpu, --torch, --all" >&2
		exit 2
		;;
	esac
done
if [ $quick = 1 ] && [ $gpu = 1 ]; then
	echo "run.sh: --quick and --gpu exclude each other" >&2
	exit 2
fi

results=$root/build/test-results
rm -rf "$results"
mkdir -p "$results" || exit 1

say() {
	printf '\n== %s\n' "$*"
}

# build PRESET [TARGET]: 0, or the failure is noted.
build() {
	say "$1: building"
	began=$(date +%s)
	KILN_TARGET=${2:-all} sh scripts/build.sh "$1" -DKILN_BUILD_TESTS=ON ||
		failed="$failed $1-build"
	echo $(($(date +%s) - began)) >"$results/$1.build"
	case " $failed " in *" $1-build "*) return 1 ;; esac
}

# The optimiser sees more than the dev preset does, and its warnings are the first words that a user
# would read of a build.  The wheel is made of the same objects.
build_optimised() {
	say "release: building, warnings are errors; the wheel of it"
	{ cmake --preset release -B build/optimised -DKILN_WERROR=ON -DKILN_BUILD_TESTS=OFF \
		-DKILN_PORTABLE=ON &&
		cmake --build build/optimised --parallel "$(nproc)"; } >"$results/optimised.log" 2>&1 || {
		grep -E 'error|warning' "$results/optimised.log" || tail -20 "$results/optimised.log"
		failed="$failed optimised-build"
		return
	}
	sh tests/python/wheel.sh build/optimised >"$results/wheel.log" 2>&1 ||
		failed="$failed wheel"
	tail -n 2 "$results/wheel.log"
}

# Hashing the compilers is most of what a new daemon does: tests start hundreds.  A compiler that
# is not the one of the hash is hashed all the same.
know_compilers() {
	"build/dev/bin/kiln_compilers" >"$results/compilers" || return 0
	while IFS='=' read -r name value; do
		export "$name=$value"
	done <"$results/compilers"
}

# pyenv's python3 is a script in front of Python and takes four times as long as Python itself;
# tests start hundreds.
know_python() {
	mkdir -p "$results/bin" &&
		printf '#!/bin/sh\nexec "%s" "$@"\n' "$(python3 -c 'import sys; print(sys.executable)')" \
			>"$results/bin/python3" &&
		chmod +x "$results/bin/python3" && PATH=$results/bin:$PATH
}

# check PRESET CTEST-ARGUMENT...: runs tests, keeps the words of skipped ones.
check() {
	preset=$1
	shift
	[ $preset = dev ] || at_once=$at_once_sanitized
	say "$preset: testing (ctest $*)"
	{
		ctest --test-dir "build/$preset" --output-on-failure --no-tests=error \
			--parallel "$at_once" --timeout 600 "$@"
		echo $? >"$results/$preset.status"
	} 2>&1 | tee "$results/$preset.log"
	[ "$(cat "$results/$preset.status")" = 0 ] || failed="$failed $preset-tests"
	cp "build/$preset/Testing/Temporary/LastTest.log" "$results/$preset.full.log" 2>/dev/null
}

# The last words of every skipped test, and the parts that cmocka programs skipped: the names from
# what CTest printed, the words from its full log.
print_skipped() {
	for log in "$results"/dev.log "$results"/asan.log "$results"/tsan.log; do
		full=${log%.log}.full.log
		[ -f "$log" ] && [ -f "$full" ] || continue
		awk -v preset="$(basename "$log" .log)" '
			FNR == NR {
				if ($0 ~ /\*\*\*Skipped/ && match($0, /#[0-9]+: [^ ]+/)) {
					split(substr($0, RSTART, RLENGTH), word, " ")
					skipped[word[2]] = 1
				}
				next
			}
			/^[0-9]+\/[0-9]+ Testing: / { name = $3; last = "no reason given" }
			/^Output:$/ { inside = 1; next }
			/^<end of output>$/ {
				inside = 0
				if (name in skipped)
					printf "  %s %s: %s\n", preset, name, last
			}
			inside && NF && !/^-+$/ { last = $0 }
			inside && /^\[  SKIPPED \] [a-z0-9_+-]+$/ { printf "  %s %s: %s\n", preset, name, $4 }
		' "$log" "$full"
	done
	[ -n "${KILN_TEST_ALL:-}" ] || [ $quick = 1 ] ||
		echo "  dev, label $dev_left_out: $dev_reason"
	[ ! -f "$results/asan.log" ] || echo "  asan, label $asan_left_out: $asan_reason"
	[ ! -f "$results/tsan.log" ] || echo "  tsan, label $tsan_left_out: $tsan_reason"
}

# "PRESET LABEL.TEST ... Passed 1.23 sec" for each test that ran.
test_lines() {
	for preset in dev asan tsan; do
		[ ! -f "$results/$preset.log" ] ||
			sed -n "s/^.*Test *#[0-9]*: /$preset /p" "$results/$preset.log"
	done
}

# A row for each label: of each preset how many tests passed, failed and were skipped, and their
# seconds.  Two tests of a label run at once, so seconds add up to more than the preset took.
print_labels() {
	test_lines | awk '
		$NF == "sec" {
			split($2, part, ".")
			label = part[1]
			state = /\*\*\*Skipped/ ? "skipped" : / Passed / ? "passed" : "failed"
			if (!(label in seen)) {
				seen[label] = 1
				labels[++count] = label
			}
			number[label, $1, state]++
			seconds[label, $1] += $(NF - 1)
			ran[label, $1] = 1
		}
		END {
			printf "%-12s%22s%22s%22s\n", "", "dev", "asan", "tsan"
			heads = "ok bad skip    s"
			printf "%-12s%22s%22s%22s\n", "", heads, heads, heads
			for (i = 1; i <= count; i++) {
				label = labels[i]
				printf "%-12s", label
				for (k = 1; k <= 3; k++) {
					preset = k == 1 ? "dev" : k == 2 ? "asan" : "tsan"
					if ((label, preset) in ran)
						printf "%9d %3d %4d %4d", number[label, preset, "passed"],
							number[label, preset, "failed"], number[label, preset, "skipped"],
							seconds[label, preset]
					else
						printf "%22s", ""
				}
				printf "\n"
			}
		}'
}

# The tests that failed, five of them, and where their output is.
print_failed() {
	test_lines | awk '
		$NF == "sec" && !/\*\*\*Skipped/ && !/ Passed / {
			if (++count <= 5)
				printf "failed: %s %s, output in build/test-results/%s.log\n", $1, $2, $1
		}
		END {
			if (count > 5)
				printf "failed: %d more, see report.txt\n", count - 5
		}'
}

# Where the time went: the ten slowest tests, and each preset.
print_times() {
	for log in "$results"/dev.log "$results"/asan.log "$results"/tsan.log; do
		[ ! -f "$log" ] || awk -v preset="$(basename "$log" .log)" '
			/Test +#[0-9]+: / && $NF == "sec" {
				sub(/.*#[0-9]+: /, "")
				print $(NF - 1), preset, $1
			}' "$log"
	done | sort -rn | awk 'NR <= 10 { printf "  %7.1f s  %s %s\n", $1, $2, $3 }'
	for preset in dev asan tsan; do
		[ -f "$results/$preset.log" ] || continue
		awk -v preset=$preset -v build="$(cat "$results/$preset.build")" '
			/^Total Test time/ {
				printf "  %-4s built in %d s, tested in %d s\n", preset, build, $6
			}' "$results/$preset.log"
	done
	echo "  all of it: $(($(date +%s) - started)) s"
}

started=$(date +%s)
# Kernels that tests have kept (tests/kept.h) and that none has asked for of late.
find build/kernels -type f -mtime +14 -delete 2>/dev/null
sh scripts/setup.sh --tests || exit 1
# Fetching leaves time on the processors, in which all programs are built.
fetching=
if [ -n "$torch" ]; then
	sh scripts/setup.sh --torch --torch-old >"$results/setup-torch.log" 2>&1 &
	fetching=$!
fi
# kilnd finds libnvrtc in build/cuda and in the usual places; a toolkit elsewhere must be named.
KILN_CUDA_DIR=${KILN_CUDA_DIR:-${CUDA_HOME:-}}
export KILN_CUDA_DIR

built=
build dev && built=dev
[ $quick = 1 ] || {
	build_optimised
	build asan kiln_checked && built="$built asan"
	build tsan kiln_checked && built="$built tsan"
}
[ -z "$fetching" ] || {
	wait "$fetching"
	status=$?
	cat "$results/setup-torch.log"
	[ $status = 0 ] || exit 1
}
case $built in
dev*) know_compilers ;;
esac
know_python
for preset in $built; do
	case $preset-$quick in
	dev-1) check dev -L '^(unit|lint|cli)$' ;;
	dev-0) check dev -LE "$dev_left_out" ;;
	asan-*) check asan -L '^(unit|integration|fuzz|extension)$' -LE "$asan_left_out" ;;
	tsan-*) check tsan -L '^(unit|integration|fuzz)$' -LE "$tsan_left_out" ;;
	esac
done

if [ $gpu = 1 ]; then
	say "gpu: tests/gpu/run.sh"
	sh tests/gpu/run.sh || failed="$failed gpu"
fi

# Everything that one may want to know goes to a file; the screen ends with what one needs.
{
	say "skipped, and why"
	skipped=$(print_skipped | awk '!seen[$0]++')
	printf '%s\n' "${skipped:-  nothing}"
	[ $quick = 0 ] ||
		echo "  --quick: all labels but unit, lint and cli, and the asan and tsan presets"
	[ -n "${KILN_TEST_ALL:-}" ] ||
		echo "  operators: every second or third dtype, a twelfth of cases alike; all with --all"
	[ $gpu = 1 ] || [ $quick = 1 ] || echo "  tests/gpu/run.sh: runs with --gpu only"
	say "failed"
	grep -hE '^[[:space:]]+[0-9]+ - [a-z_.0-9]+ \(' "$results"/*.log || echo "  nothing"
	say "what tests counted"
	sed -n 's/^result: /  /p' "$results"/*.full.log
	say "the time it took"
	print_times
} >"$results/report.txt"

say "result"
print_labels
print_failed
echo "$(($(date +%s) - started)) s; what was skipped, what took long: build/test-results/report.txt"
if [ -n "$failed" ]; then
	echo "run.sh: failed:$failed"
	exit 1
fi
echo "run.sh: nothing failed"
