#!/bin/sh
# check_includes.sh: who may include whom.  The rules stand in the two tables below: one for our own
# files, one for the headers of libraries.
. "$(dirname "$0")/lib.sh"

{
	sources .c .h .cuh .S
	echo ---
	sources .c .h .cuh | xargs grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]'
} | awk '
	function normal(path,    parts, n, i, out, depth) {
		n = split(path, parts, "/")
		depth = 0
		for (i = 1; i <= n; i++) {
			if (parts[i] == ".." && depth > 0)
				depth--
			else if (parts[i] != "." && parts[i] != "")
				out[++depth] = parts[i]
		}
		path = ""
		for (i = 1; i <= depth; i++)
			path = path (i > 1 ? "/" : "") out[i]
		return path
	}
	function resolve(file, name, quoted,    dir, path) {
		dir = file
		sub(/[^\/]*$/, "", dir)
		path = normal(dir name)
		if (quoted && path in known)
			return path
		if (name in known)
			return name
		if (("include/" name) in known)
			return "include/" name
		if (("kernel_src/" name) in known)
			return "kernel_src/" name
		if (("tests/" name) in known)
			return "tests/" name
		return ""
	}
	# The first row whose pattern fits the file decides what of ours it may include.
	function own(from, to) { ownfrom[++owns] = from; ownto[owns] = to }
	function library(header, from) { libheader[++libs] = header; libfrom[libs] = from }
	BEGIN {
		own("^include/kiln/", "^include/kiln/")
		own("^client/wire/", "^(include/kiln/|client/wire/)")
		own("^client/lib/", "^(include/kiln/|client/(lib|wire)/)")
		own("^client/python/", "^(include/kiln/|client/python/)")
		# The command line has the rows of the operators from the planner.
		shared = "include/kiln/|client/wire/plain\\.h$|client/cli/[^/]*$|daemon/plan/op\\.h$"
		own("^client/cli/(main\\.c$|commands/)", "^(" shared "|client/cli/commands/)")
		own("^client/cli/", "^(" shared "|tests/ops/(common/reference|map/eval)\\.h$)")
		# Every room may know the words of the public header, and the description of a kernel.
		nouns = "include/kiln/kiln\\.h$|daemon/plan/kernel\\.h$|client/wire/|daemon/base/"
		own("^daemon/base/", "^(" nouns ")")
		own("^daemon/plan/", "^(" nouns "|daemon/plan/)")
		own("^daemon/seal/", "^(" nouns "|daemon/seal/)")
		own("^daemon/cache/", "^(" nouns "|daemon/(cache|seal)/)")
		own("^daemon/sandbox/", "^(" nouns "|daemon/sandbox/)")
		own("^daemon/compile/", "^(" nouns "|daemon/(compile|sandbox)/)")
		own("^daemon/exec/", "^(" nouns "|daemon/(exec|plan|sandbox)/|kernel_src/cpu/abi\\.cuh$)")
		below = nouns "|daemon/(plan|seal|cache|sandbox|compile|exec|options)/"
		own("^daemon/options/", "^(" below ")")
		own("^daemon/", "^(" below "|include/kiln/|daemon/broker/)")
		own("^kernel_src/common/types\\.cuh$", "^$")
		own("^kernel_src/common/vec\\.cuh$", "^kernel_src/common/types\\.cuh$")
		own("^kernel_src/common/warp\\.cuh$", "^kernel_src/common/(types|vec)\\.cuh$")
		own("^kernel_src/common/", "^kernel_src/common/")
		own("^kernel_src/ops/", "^kernel_src/common/")
		own("^kernel_src/cpu/", "^kernel_src/(common|cpu)/")
		own("^examples/", "^(include/kiln/|examples/)")
		own("^tests/ops/common/problem\\.h$", "^(tests/ops/common/cases|daemon/plan/kernel)\\.h$")
		own("^tests/ops/", "^(include/kiln/kiln\\.h$|tests/ops/)")
		own("^tests/", "^(include|client|daemon|tests|kernel_src)/")
		library("^uv\\.h$", "^(daemon/(base|broker)/.*|daemon/main\\.c|tests/.*)$")
		library("^Python\\.h$", "^client/python/.*")
		library("^cuda\\.h$", "^(daemon/exec/cuda/.*|client/lib/cuda_driver\\.h|" \
			"tests/(gpu/.*|bench/.*|unit/exec/.*|integration/[^/]*cuda[^/]*))$")
		library("^nvrtc\\.h$", "^daemon/compile/nvrtc[^/]*$")
		library("^sqlite3\\.h$", "^(daemon/cache/.*|tests/unit/cache/.*|tests/fuzz/.*)$")
		library("^sodium", "^(daemon/(base|seal)/.*|tests/unit/.*)$")
		library("^hiredis", "^(daemon/broker/devices/remote/.*|" \
			"tests/integration/[^/]*remote[^/]*)$")
		library("^seccomp\\.h$", "^daemon/sandbox/filter\\.c$")
		library("^msgpack", "^(client/wire/.*|tests/(unit|fuzz)/.*)$")
		library("^cuda_runtime|^cuda_fp16|^cooperative_groups|^cub/|^cuda/", "^$")
	}
	$0 == "---" { listed = 1; next }
	!listed { known[$0] = 1; next }
	{
		split($0, field, ":")
		file = field[1]
		line = field[2]
		quoted = match($0, /include[ \t]*"/)
		match($0, /[<"][^>"]*[>"]/)
		name = substr($0, RSTART + 1, RLENGTH - 2)
		target = resolve(file, name, quoted)
		if (target == "") {
			if (quoted)
				printf "%s:%s: \"%s\" is no file of the tree\n", file, line, name
			else if (file ~ /^kernel_src\//)
				printf "%s:%s: <%s>: kernels include nothing from outside\n", file, line, name
			for (i = 1; i <= libs; i++)
				if (name ~ libheader[i] && file !~ libfrom[i])
					printf "%s:%s: <%s> is for %s only\n", file, line, name, libfrom[i]
			next
		}
		for (i = 1; i <= owns; i++)
			if (file ~ ownfrom[i]) {
				if (target !~ ownto[i])
					printf "%s:%s: includes %s, which %s must not know\n", file, line, target,
						ownfrom[i]
				next
			}
	}
' | finish includes
