#!/bin/sh
# make_corpus_wire.sh: writes the corpus of fuzz_wire: hostile messages, and a few good ones to
# start from.  Run it again after adding a line; the files are committed.
set -eu
cd "$(dirname "$0")/corpus/wire"

# sample NAME BYTES: bytes as printf's octal escapes, from hexadecimal
sample() {
	octal=
	for byte in $2; do
		octal="$octal\\$(printf '%03o' "0x$byte")"
	done
	# The format is the data here.
	# shellcheck disable=SC2059
	printf "$octal" >"$1"
}


# Counts and lengths that the message does not have.
sample array32_all_ones 'dd ff ff ff ff'
sample map32_all_ones 'df ff ff ff ff'
sample map_of_array32 '81 a1 61 dd ff ff ff ff'
sample map_of_map32 '81 a1 61 df 7f ff ff ff'
sample map_of_array16 '81 a1 61 dc ff ff c0'
sample map16_short 'de 00 05 a1 61 01'
sample str32_all_ones '81 a1 61 db ff ff ff ff 61'
sample bin32_all_ones '81 a1 62 c6 ff ff ff ff 00'
sample str8_short '81 a1 73 d9 0a 61 62'
sample fixstr_short '81 bf 61'
sample length_cut '81 a1 61 dd ff ff'
sample count_of_small 'df 00 00 00 02 a1 61 01 a1 62 dd 00 00 00 03 01 02'

# Nesting: the deepest allowed, one deeper, and far too deep.
sample deep_allowed '81 a1 61 91 91 91 91 91 91 91 2a'
sample deep_refused '81 a1 61 91 91 91 91 91 91 91 91 2a'
sample deep_maps '81 a1 61 81 a1 61 81 a1 61 81 a1 61 81 a1 61 81 a1 61 81 a1 61 81 a1 61
	81 a1 61 00'
sample deep_far "81 a1 61 $(yes 91 | head -n 400 | tr '\n' ' ') 00"

# Kinds that are never used, and ends that are none.
sample ext_fix '81 a1 61 d4 01 02'
sample ext8 '81 a1 61 c7 01 05 00'
sample ext32_all_ones '81 a1 61 c9 ff ff ff ff 01'
sample never_used '81 a1 61 c1'
sample trailing '80 00'
sample two_messages '80 80'
sample empty ''
sample no_map '93 01 02 03'
sample float_cut '81 a1 72 cb 40 09'

# Odd but allowed: keys that are no strings, keys that come twice, zero bytes, strange numbers.
sample keys_of_all_kinds '86 01 02 c0 03 90 04 80 05 c3 06 cb 3f f0 00 00 00 00 00 00 07'
sample key_twice '82 a1 69 91 01 a1 69 91 02'
sample zero_in_string '82 a1 73 a3 61 00 62 a1 74 a1 00'
sample not_utf8 '81 a1 73 a4 ff fe c0 80'
sample nan_and_infinity '82 a1 72 cb 7f f8 00 00 00 00 00 01 a1 75 ca 7f 80 00 00'
sample integer_edges '84 a1 69 93 cf ff ff ff ff ff ff ff ff d3 80 00 00 00 00 00 00 00 e0 a1
	75 cb 43 e0 00 00 00 00 00 00 a1 72 cf 80 00 00 00 00 00 00 00 a1 78 ff'

# Good ones.
sample hello '84 a1 74 a5 68 65 6c 6c 6f a2 69 64 01 a5 70 72 6f 74 6f 01 a6 64 65 76
	69 63 65 a3 63 70 75'
sample submit '84 a1 74 a6 73 75 62 6d 69 74 a2 69 64 07 a4 63 61 6c 6c 03 a8 6f 70 65
	72 61 6e 64 73 92 92 01 00 92 02 cd 01 00'
sample binary '83 a1 74 a4 6c 65 6e 64 a1 62 c4 04 00 01 02 03 a1 73 d9 03 61 62 63'
