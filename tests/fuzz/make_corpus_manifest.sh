#!/bin/sh
# make_corpus_manifest.sh: writes the corpus of fuzz_manifest: good lines of each form, and hostile
# ones.  Run it again after adding a line; the files are committed.
set -eu
cd "$(dirname "$0")/corpus/manifest"

sample() {
	printf '%s' "$2" >"$1"
}

sample permute 'permute x=f32:64x3x512x512 y=f32:64x512x512x3 perm=[0,2,3,1]'
sample strides 'softmax x=f16:64x1000/1,64@2 y=f16:64x1000 axis=-1 scale=0.125  # asked 3 times'
sample words 'masked_softmax x=bf16:2x3 mask=bool:2x3 y=bf16:2x3 kind="bool" empty="nan" keep=1'
sample map 'map names="x, b, y" y=f32:8x9 x=f32:8x9 b=f32:9 statement="y[i, j] = x[i, j] + b[j]"'
sample scalar 'permute x=c128:scalar perm=[]'
sample escapes 'map statement="\x0a\"\\ # no comment" names=""'
sample reals 'softmax x=f64:1 scale=-1e-300 eps=nan axis=inf'
sample empty ''
sample comment '   # nothing'
sample unended 'map statement="y'
sample backslash 'map statement="\'
sample halfhex 'map statement="\x1'
sample overflow 'softmax x=f32:9223372036854775807x9223372036854775807@16/9223372036854775807'
sample negative 'softmax x=f32:-1'
sample ranks 'softmax x=f32:1x1x1x1x1x1x1x1x1x1x1x1'
sample twice 'softmax x=f32:1 x=f32:1 axis=1 axis=1'
sample names 'map names=",,,,,?,, ,"  a=f32:1 statement="a"'
sample long_name 'softmax aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa=1'
sample many "softmax $(for i in a b c d e f g h i j k l m n o p q r s t u v w x y z; do
	printf '%s%s=1 %s=f32:1 ' $i $i $i
done)"
sample long_text "map statement=\"$(printf '%02000d' 0)\""
sample two_texts "map statement=\"$(printf '%01000d' 0)\" names=\"$(printf '%01000d' 0)\""
