/*
 * fuzz_key: two texts as those of keys: what they differ in, in words, and the first read back as
 * the job that it is of.  A key that is read back makes a unit or is refused in a sentence.
 *
 * A line of "--" ends the first text, another the second; what follows is the unit.
 */
#include "daemon/compile/backend.h"
#include "fuzz.h"

const char *const fuzz_words[] = {
	"kiln-key 3\n",
	"target sm_90\n",
	"target cpu\n",
	"toolchain nvrtc 13.0 abcd\n",
	"\noptions ",
	"\nsource ",
	"\ninstantiation ",
	"\nfile ",
	"\nuser\n",
	"\noption ",
	"\nmacro ",
	"\nheader ",
	"\n--\n",
	"<",
	">",
	", ",
	"::",
	"\\x0a",
	"\\x",
	"\\",
	"permute_tile<u16, 64, 64, 4>",
	"-std=c++17 -default-device --ptxas-options=-v --minimal --no-cache",
	"template <typename T, int N> ",
	"dc6d4248e9f032d99ffe5128272822ce843478672dd58a9b464d807c4b64fb6f",
	NULL};

static const struct compile_file files[] = {
	{"ops/x.cuh", "template <typename T, int Rank, bool Masked>\n__device__ void k() {}\n", 68}};

static void differences(const char *asked, const char *other)
{
	struct compile_differences found;
	memset(&found, 0, sizeof(found));
	compile_key_differences(asked, other, files, 1, &found);
	require(found.count >= 0 && found.count <= COMPILE_DIFFERENCES && found.left_out >= 0,
			"more differences than there is room for");
	for (int i = 0; i < found.count; i++)
		require(found.items[i].what && strlen(found.items[i].text) < sizeof(found.items[i].text),
				"a difference without a name");
	compile_key_differences(asked, asked, files, 1, &found);
	require(found.distance == 0 && found.count == 0, "a text differs from itself");
}

static void again(const char *key, const char *unit)
{
	struct compile_again found;
	char error[KERNEL_ERROR_MAX] = "";
	char *text = NULL;

	if (compile_again_open(key, unit, &found, error) != KILN_OK) {
		require_sentence(error);
		return;
	}
	if (unit_make(&found.job, &text, error) == KILN_OK)
		require(!strcmp(text, unit), "the unit is not the one that was compiled");
	else
		require_sentence(error);
	free(text);
	compile_again_close(&found);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size), *second = strstr(text, "\n--\n"), *unit = NULL;
	if (second) {
		second[1] = 0;
		unit = strstr(second += 4, "\n--\n");
	}
	if (unit) {
		unit[1] = 0;
		unit += 4;
	}
	differences(text, second ? second : "");
	again(text, unit ? unit : "");
	free(text);
	return 0;
}
