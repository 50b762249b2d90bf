#!/bin/sh
# check_length.sh: files of at most 800 lines (400 are wanted), functions of at most 60, lines of at
# most 100 columns with tabs of 4 (120 in tables that clang-format leaves alone).  Lines that are
# made of the operators' rows do not count.
. "$(dirname "$0")/lib.sh"

sources .c .h .cuh .sh .S | xargs awk '
	function columns(text,    i, n, width) {
		if (length(text) * 4 <= 100)
			return 0
		n = length(text)
		width = 0
		for (i = 1; i <= n; i++)
			width += substr(text, i, 1) == "\t" ? 4 - width % 4 : 1
		return width
	}
	function close_file() {
		if (file != "" && lines > 800)
			printf "%s:%d: more than 800 lines: split it\n", file, lines
	}
	FNR == 1 { close_file(); file = FILENAME; table = 0; start = 0; made = 0 }
	/^\/\* ---- Helpers made of rows/ { made = 1 }
	!made { lines = FNR }
	/clang-format off/ { table = 1 }
	/clang-format on/ { table = 0 }
	{
		width = columns($0)
		if (width > (table ? 120 : 100))
			printf "%s:%d: %d columns\n", FILENAME, FNR, width
	}
	FILENAME ~ /\.c$/ && /^{/ { start = FNR }
	FILENAME ~ /\.c$/ && /^}/ && start {
		if (FNR - start - 1 > 60)
			printf "%s:%d: a function of %d lines; 60 do\n", FILENAME, start, FNR - start - 1
		start = 0
	}
	END { close_file() }
' | finish length
