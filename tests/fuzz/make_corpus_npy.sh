#!/bin/sh
# make_corpus_npy.sh: writes the corpus of fuzz_npy: good files of each form, and hostile ones.  Run
# it again after adding a line; the files are committed.
set -eu
cd "$(dirname "$0")/corpus/npy"

# sample NAME VERSION HEADER BYTES: a file whose header has the length that it says, and BYTES zeros
sample() {
	length=$(printf '%s\n' "$3" | wc -c)
	low=$(printf '%03o' $((length % 256)))
	high=$(printf '%03o' $((length / 256)))
	more=
	[ "$2" -eq 1 ] || more='\000\000'
	# The format is the data here.
	# shellcheck disable=SC2059
	printf "\223NUMPY\\00$2\\000\\$low\\$high$more" >"$1"
	printf '%s\n' "$3" >>"$1"
	head -c "$4" /dev/zero >>"$1"
}

# whole NAME BYTES: the bytes as printf's octal escapes
whole() {
	# shellcheck disable=SC2059
	printf "$2" >"$1"
}

# Good ones.
sample good1 1 "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }      " 24
sample good2 2 "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3, 4), }" 24
sample good3 3 '{"shape":(),"fortran_order":False,"descr":"<c16"}' 16
sample empty_axis 1 "{'descr': '<i8', 'fortran_order': True, 'shape': (3, 0, 5), }" 0
sample eight_axes 1 "{'descr': '|b1', 'fortran_order': True, 'shape': (1,2,1,2,1,2,1,1)}" 8

# Lengths and sizes that the file does not have.
whole nothing ''
whole magic '\223NUMPY'
whole no_length '\223NUMPY\001\000'
whole long_header '\223NUMPY\001\000\377\377{'
whole wide_header '\223NUMPY\002\000\377\377\377\377{'
sample cut_off 1 "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000,), }" 4
sample too_long 1 "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }" 5
sample product 1 "{'descr': '<f8', 'fortran_order': True, 'shape': (4294967296, 4294967296), }" 0
sample hidden 1 "{'descr': '|u1', 'fortran_order': True, 'shape': (0, 4294967296, 4294967296)}" 0
sample beyond 1 "{'descr': '|u1', 'fortran_order': False, 'shape': (18446744073709551617,), }" 1
sample nine_axes 1 "{'descr': '|u1', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}" 1

# Dictionaries that are none, or other than they should be.
sample unclosed 1 "{'descr': '<f4" 4
sample comma 1 "{,}" 0
sample twice 1 "{'descr': '<f4', 'descr': '<f4', 'shape': (1,)}" 4
sample lacking 1 "{'descr': '<f4', 'shape': (1,)}" 4
sample code 1 "{'descr': '<f4', 'fortran_order': False, 'shape': (2**31,)}" 4
sample escape 1 "{'descr': '<f\\x34', 'fortran_order': False, 'shape': (1,)}" 4
sample long_word 1 "{'$(printf '%100s' x)': 1}" 0

# Types that are not read.
sample big_endian 1 "{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }" 4
sample objects 1 "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }" 8
sample structures 1 "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }" 4
sample bf16 1 "{'descr': '<V2', 'fortran_order': False, 'shape': (1,), }" 2
sample no_type 1 "{'descr': '', 'fortran_order': False, 'shape': (1,), }" 2
