/* NumPy's files: byte for byte as written and read, and the sentence of every refusal. */
#include "client/cli/npy.c"
#include "client/cli/npy_file.c"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/resource.h>
/* after the above */
#include <cmocka.h>

#define FILE_MAX 70000

static char directory[] = "/tmp/kiln-npy-XXXXXX";

static const char *path_of(const char *name)
{
	static char path[512];
	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return path;
}

/* A file: prefix of a format, header as it is given, elements. */
struct file {
	uint8_t bytes[FILE_MAX];
	size_t size;
};

static void file_make(struct file *file, int format, const char *header, const void *data,
					  size_t bytes)
{
	size_t length = strlen(header), wide = format > 1 ? 4 : 2;
	memcpy(file->bytes, "\x93NUMPY", 6);
	file->bytes[6] = (uint8_t)format;
	file->bytes[7] = 0;
	for (size_t i = 0; i < wide; i++)
		file->bytes[8 + i] = (uint8_t)(length >> 8 * i);
	memcpy(file->bytes + 8 + wide, header, length);
	if (bytes)
		memcpy(file->bytes + 8 + wide + length, data, bytes);
	file->size = 8 + wide + length + bytes;
}

static const char *put_file(const char *name, const void *bytes, size_t size)
{
	const char *path = path_of(name);
	FILE *out = fopen(path, "wb");
	assert_non_null(out);
	assert_int_equal(fwrite(bytes, 1, size, out), size);
	assert_int_equal(fclose(out), 0);
	return path;
}

static size_t get_file(const char *path, uint8_t bytes[FILE_MAX])
{
	FILE *in = fopen(path, "rb");
	size_t size;
	assert_non_null(in);
	size = fread(bytes, 1, FILE_MAX, in);
	fclose(in);
	return size;
}

/* ---- What is read ---- */

static void read_good(int format, const char *header, const void *data, size_t bytes,
					  struct npy *npy)
{
	static struct file file;
	char why[NPY_WHY_MAX] = "";
	file_make(&file, format, header, data, bytes);
	if (!npy_read(put_file("in.npy", file.bytes, file.size), npy, why))
		fail_msg("%s: %s", header, why);
	assert_int_equal(npy->bytes, bytes);
}

static void every_type_is_read(void **state)
{
	static const struct {
		const char *descr;
		kiln_dtype dtype;
		size_t size;
	} rows[] = {
		{"<f2", KILN_F16, 2},  {"<f4", KILN_F32, 4},    {"<f8", KILN_F64, 8}, {"|i1", KILN_I8, 1},
		{"<i2", KILN_I16, 2},  {"<i4", KILN_I32, 4},    {"<i8", KILN_I64, 8}, {"|u1", KILN_U8, 1},
		{"<u2", KILN_U16, 2},  {"<u4", KILN_U32, 4},    {"<u8", KILN_U64, 8}, {"|b1", KILN_BOOL, 1},
		{"=f4", KILN_F32, 4},  {"|f8", KILN_F64, 8},    {"<u1", KILN_U8, 1},  {"<c8", KILN_C64, 8},
		{"=b1", KILN_BOOL, 1}, {"<c16", KILN_C128, 16},
	};
	uint8_t data[48];
	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 37 + 1);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char header[160];
		struct npy npy;
		snprintf(header, sizeof(header),
				 "{'descr': '%s', 'fortran_order': False, 'shape': (3,), }  \n", rows[i].descr);
		read_good(1, header, data, 3 * rows[i].size, &npy);
		assert_int_equal(npy.dtype, rows[i].dtype);
		assert_int_equal(npy.rank, 1);
		assert_int_equal(npy.shape[0], 3);
		assert_memory_equal(npy.data, data, npy.bytes);
		free(npy.data);
	}
}

static void every_format_and_form_is_read(void **state)
{
	static const char *const headers[] = {
		"{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }     \n",
		"{\"shape\":(2,3,),\"fortran_order\":False,\"descr\":\"<i2\"}",
		"{ 'fortran_order' : False ,\n'shape' : ( 2 , 3 ) ,\n'descr' : '<i2' , }\n\n",
	};
	const int16_t data[6] = {1, 2, 3, 4, 5, 6};
	struct npy npy;
	(void)state;
	for (int format = 1; format <= 3; format++)
		for (size_t i = 0; i < 3; i++) {
			read_good(format, headers[i], data, sizeof(data), &npy);
			assert_int_equal(npy.dtype, KILN_I16);
			assert_int_equal(npy.rank, 2);
			assert_int_equal(npy.shape[0], 2);
			assert_int_equal(npy.shape[1], 3);
			assert_memory_equal(npy.data, data, sizeof(data));
			free(npy.data);
		}
	read_good(1, "{'descr': '<i2', 'fortran_order': False, 'shape': ()}", data, 2, &npy);
	assert_int_equal(npy.rank, 0);
	free(npy.data);
	read_good(1, "{'descr': '<i2', 'fortran_order': True, 'shape': (3, 0, 2)}", data, 0, &npy);
	assert_int_equal(npy.rank, 3);
	assert_int_equal(npy.shape[1], 0);
	free(npy.data);
	read_good(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 2)}",
			  data, 2, &npy);
	assert_int_equal(npy.rank, 8);
	assert_int_equal(npy.shape[7], 2);
	free(npy.data);
}

static void fortran_order_is_turned(void **state)
{
	/* Element (i, j, k) is 100 i + 10 j + k; the first index runs fastest in the file. */
	const uint16_t file[12] = {0, 100, 10, 110, 20, 120, 1, 101, 11, 111, 21, 121};
	const uint16_t rows[12] = {0, 1, 10, 11, 20, 21, 100, 101, 110, 111, 120, 121};
	struct npy npy;
	(void)state;
	read_good(1, "{'descr': '<u2', 'fortran_order': True, 'shape': (2, 3, 2), }\n", file,
			  sizeof(file), &npy);
	assert_memory_equal(npy.data, rows, sizeof(rows));
	free(npy.data);
	read_good(1, "{'descr': '<u2', 'fortran_order': True, 'shape': (12,), }\n", file, sizeof(file),
			  &npy);
	assert_memory_equal(npy.data, file, sizeof(file));
	free(npy.data);
}

/* ---- What is refused ---- */

static void refused(const char *bytes, size_t size, const char *sentence)
{
	char why[NPY_WHY_MAX] = "", expected[NPY_WHY_MAX + 64];
	struct npy npy = {.data = why};
	const char *path = put_file("bad.npy", bytes, size);
	assert_false(npy_read(path, &npy, why));
	snprintf(expected, sizeof(expected), "%s: %s", path, sentence);
	assert_string_equal(why, expected);
	assert_ptr_equal(npy.data, why); /* untouched */
}

static void refused_header(const char *header, size_t bytes, const char *sentence)
{
	static struct file file;
	static const uint8_t zeros[64];
	file_make(&file, 1, header, zeros, bytes);
	refused((const char *)file.bytes, file.size, sentence);
}

/* descr, for one element of so many bytes */
static void refused_descr(const char *descr, const char *sentence)
{
	char header[160];
	snprintf(header, sizeof(header), "{'descr': %s, 'fortran_order': False, 'shape': (1,), }\n",
			 descr);
	refused_header(header, 8, sentence);
}

static void other_types_are_refused(void **state)
{
	static const char there[] =
		"there are f2 f4 f8, i1 to i8, u1 to u8, b1, c8 and c16, little-endian";
	static const char *const none[] = {"<U5", "|S3",  "<M8[ns]", "f4",  "<f16",
									   "<f",  "<f04", "",        "<i3", "<b4"};
	char sentence[200];
	(void)state;
	refused_descr("'>f4'", "it is big-endian (descr '>f4'); save "
						   "x.astype(x.dtype.newbyteorder('<'))");
	refused_descr("'|O'", "it holds Python objects (descr '|O'), which are no numbers");
	refused_descr("[('a', '<f4'), ('b', '<i4')]",
				  "it holds structures (descr is a list); save each field as an array");
	refused_descr("'|V12'", "it holds structures (descr '|V12'); save each field as an array");
	refused_descr("'<V2'", "its elements are two bytes without a type (descr '<V2', as NumPy "
						   "stores bf16); save x.view(numpy.uint16), and say --dtype NAME=bf16");
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		char descr[32];
		snprintf(descr, sizeof(descr), "'%s'", none[i]);
		snprintf(sentence, sizeof(sentence), "its element type is '%s'; %s", none[i], there);
		refused_descr(descr, sentence);
	}
}

static void other_headers_are_refused(void **state)
{
	(void)state;
	refused_header("{'descr': '<f4', 'shape': (1,), }", 4,
				   "its header lacks one of descr, fortran_order and shape");
	refused_header("{'descr': '<f4', 'descr': '<f4', 'shape': (1,), }", 4,
				   "its header has the key 'descr' twice");
	refused_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}", 4,
				   "its header has the key 'more'; descr, fortran_order and shape are all there "
				   "may be");
	refused_header("['descr']", 4, "its header is wrong at byte 10: expected '{'");
	refused_header("{'descr' '<f4'}", 4, "its header is wrong at byte 19: expected ':'");
	refused_header("{descr: '<f4'}", 4,
				   "its header is wrong at byte 11: expected a key as a string");
	refused_header("{'descr': '<f4' 'shape': (1,)}", 4,
				   "its header is wrong at byte 26: expected ',' or '}'");
	refused_header("{'descr': '<f4", 4,
				   "its header is wrong at byte 24: expected the end of the string");
	refused_header("{'descr': 4}", 4,
				   "its header is wrong at byte 20: expected the element type as a string");
	refused_header("{'descr': '<\\x664'}", 4,
				   "its header is wrong at byte 22: expected the element type as a string");
	refused_header("{'fortran_order': 0}", 4,
				   "its header is wrong at byte 28: expected True or False");
	refused_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", 4,
				   "its header is wrong at byte 66: expected nothing but space after '}'");
	refused_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)", 4,
				   "its header is wrong at byte 64: expected ',' or '}'");
	refused_header("{'shape': 3}", 4,
				   "its header is wrong at byte 20: expected the shape, as (2, 3)");
	refused_header("{'shape': (3)}", 4,
				   "its header is wrong at byte 23: expected a comma after the only size");
	refused_header("{'shape': (3 4)}", 4,
				   "its header is wrong at byte 23: expected ',' or ')' in the shape");
	refused_header("{'shape': (-3,)}", 4,
				   "its header is wrong at byte 21: expected a size of the shape");
	refused_header("{'shape': (03,)}", 4,
				   "its header is wrong at byte 23: expected a size of the shape");
	refused_header("{'shape': (,)}", 4,
				   "its header is wrong at byte 21: expected a size of the shape");
	refused_header("{'shape': (9223372036854775808,)}", 4, "its shape has a size over 2^63 - 1");
	refused_header("{'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1)}", 4, "it has more than 8 axes");
}

static void wrong_sizes_are_refused(void **state)
{
	static const char two[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n";
	static struct file file;
	char sentence[200];
	(void)state;
	refused_header(two, 7, "its shape has 8 bytes of elements, and the file 7, so it is cut off");
	refused_header(two, 9, "its shape has 8 bytes of elements, and the file 9, so it is too long");
	refused_header("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904,), }", 8,
				   "its shape has more bytes than an address can name");
	refused_header("{'descr': '|u1', 'fortran_order': False, 'shape': (0, 4294967296, "
				   "4294967296), }",
				   0, "its shape has more bytes than an address can name");
	refused("PK\x03\x04zip", 7, "it is a .npz archive of arrays; save one with numpy.save");
	refused("", 0, "it is no .npy file: it does not begin with \\x93NUMPY");
	refused("\x93NUMPX\x01\x00\x00\x00", 10,
			"it is no .npy file: it does not begin with "
			"\\x93NUMPY");
	refused("\x93NUMPY\x04\x00\x00\x00", 10, "it is of format 4.0; 1.0, 2.0 and 3.0 are read");
	refused("\x93NUMPY\x01\x01\x00\x00", 10, "it is of format 1.1; 1.0, 2.0 and 3.0 are read");
	refused("\x93NUMPY\x02\x00\x00\x00", 10, "it ends in its header, after 10 bytes");
	file_make(&file, 1, two, NULL, 0);
	for (size_t size = 10; size < file.size; size++) {
		snprintf(sentence, sizeof(sentence),
				 "it ends in its header: that has %zu bytes and the file %zu", file.size, size);
		refused((const char *)file.bytes, size, sentence);
	}
	memset(file.bytes, ' ', sizeof(file.bytes));
	memcpy(file.bytes, "\x93NUMPY\x02\x00\x00\x01\x01\x00", 12);
	refused((const char *)file.bytes, sizeof(file.bytes),
			"its header has 65804 bytes; 65600 are the most");
}

static void files_are_named(void **state)
{
	struct npy npy;
	char why[NPY_WHY_MAX], expected[NPY_WHY_MAX + 64];
	const char *path = path_of("nothing.npy");
	(void)state;
	assert_false(npy_read(path, &npy, why));
	snprintf(expected, sizeof(expected), "%s cannot be opened: No such file or directory", path);
	assert_string_equal(why, expected);
	assert_false(npy_read(directory, &npy, why));
	snprintf(expected, sizeof(expected), "%s is no regular file", directory);
	assert_string_equal(why, expected);
	npy = (struct npy){.dtype = KILN_U8};
	assert_false(npy_write(directory, &npy, why));
	assert_string_equal(why, expected);
	assert_false(npy_write("/dev/null", &npy, why));
	assert_string_equal(why, "/dev/null is no regular file");
}

/* ---- What is written ---- */

static void written(const struct npy *npy, const char *dictionary)
{
	static uint8_t bytes[FILE_MAX];
	static struct file file;
	const char *path = path_of("out.npy");
	char header[256], why[NPY_WHY_MAX] = "";
	size_t total = (10 + strlen(dictionary) + 1 + 63) / 64 * 64;
	struct npy again;

	memset(header, ' ', sizeof(header));
	memcpy(header, dictionary, strlen(dictionary));
	header[total - 11] = '\n';
	header[total - 10] = 0;
	file_make(&file, 1, header, npy->data, npy->bytes);
	if (!npy_write(path, npy, why))
		fail_msg("%s", why);
	assert_int_equal(get_file(path, bytes), file.size);
	assert_memory_equal(bytes, file.bytes, file.size);
	assert_true(npy_read(path, &again, why));
	assert_int_equal(again.dtype, npy->dtype == KILN_BF16     ? KILN_U16
								  : npy->dtype == KILN_F8E5M2 ? KILN_U8
															  : npy->dtype);
	assert_int_equal(again.rank, npy->rank);
	assert_memory_equal(again.shape, npy->shape, sizeof(npy->shape));
	assert_memory_equal(again.data, npy->data, npy->bytes);
	free(again.data);
}

static void files_are_written_byte_for_byte(void **state)
{
	float values[6] = {1, -2, 3.5f, 0, 1e30f, -0.0f};
	uint8_t flags[2] = {0, 1};
	(void)state;
	written(&(struct npy){KILN_F32, 2, {2, 3}, 24, values},
			"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }");
	written(&(struct npy){KILN_F64, 1, {3}, 24, values},
			"{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }");
	written(&(struct npy){KILN_BF16, 1, {2}, 4, values},
			"{'descr': '<u2', 'fortran_order': False, 'shape': (2,), }");
	written(&(struct npy){KILN_F8E5M2, 1, {4}, 4, values},
			"{'descr': '|u1', 'fortran_order': False, 'shape': (4,), }");
	written(&(struct npy){KILN_C128, 0, {0}, 16, values},
			"{'descr': '<c16', 'fortran_order': False, 'shape': (), }");
	written(&(struct npy){KILN_BOOL, 3, {1, 2, 1}, 2, flags},
			"{'descr': '|b1', 'fortran_order': False, 'shape': (1, 2, 1), }");
	written(&(struct npy){KILN_I8, 2, {0, 5}, 0, flags},
			"{'descr': '|i1', 'fortran_order': False, 'shape': (0, 5), }");
}

static void the_longest_header_has_room(void **state)
{
	struct npy npy = {.dtype = KILN_C128, .rank = KILN_MAX_RANK}, again;
	uint8_t header[NPY_WRITTEN_MAX];
	char why[NPY_WHY_MAX];
	uint64_t data_at;
	bool fortran;
	size_t length;
	(void)state;
	for (int k = 0; k < KILN_MAX_RANK; k++)
		npy.shape[k] = INT64_MAX;
	length = npy_header(&npy, header);
	assert_int_equal(length, 256);
	assert_int_equal(header[length - 1], '\n');
	assert_false(npy_parse(header, length, length, &again, &data_at, &fortran, why));
	assert_string_equal(why, "its shape has more bytes than an address can name");
}

/* Counts the files in the directory besides in.npy, bad.npy and out.npy. */
static int left_behind(void)
{
	DIR *all = opendir(directory);
	int count = 0;
	assert_non_null(all);
	for (struct dirent *entry; (entry = readdir(all));)
		count += strstr(entry->d_name, ".tmp") != NULL;
	closedir(all);
	return count;
}

static void names_are_long_and_links_stay(void **state)
{
	uint8_t value = 7;
	struct npy npy = {KILN_U8, 0, {0}, 1, &value}, again;
	char name[256], path[4096], why[NPY_WHY_MAX];
	struct stat found;
	(void)state;
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	if (!npy_write(path_of(name), &npy, why))
		fail_msg("%s", why);
	assert_int_equal(symlink(name, path_of("link.npy")), 0);
	value = 8;
	assert_true(npy_write(path_of("link.npy"), &npy, why));
	assert_int_equal(lstat(path_of("link.npy"), &found), 0);
	assert_true(S_ISLNK(found.st_mode));
	assert_true(npy_read(path_of(name), &again, why));
	assert_int_equal(*(uint8_t *)again.data, 8);
	free(again.data);
	assert_int_equal(unlink(path_of("link.npy")), 0);
	assert_int_equal(unlink(path_of(name)), 0);
	/* The reason is there, however long the path. */
	for (size_t i = 0; i + 1 < sizeof(path); i++)
		path[i] = i % 9 ? 'd' : '/';
	path[2000] = 0;
	assert_false(npy_read(path, &again, why));
	assert_string_equal(why + strlen(why) - 43, "cannot be opened: No such file or directory");
	assert_false(npy_write(path, &npy, why));
	assert_string_equal(why + strlen(why) - 44, "cannot be written: No such file or directory");
}

static void a_full_disk_leaves_nothing_behind(void **state)
{
	static uint8_t big[1 << 16], bytes[FILE_MAX];
	struct npy npy = {KILN_U8, 1, {sizeof(big)}, sizeof(big), big};
	struct rlimit before, limit;
	char why[NPY_WHY_MAX], expected[NPY_WHY_MAX + 64];
	const char *path = put_file("full.npy", "as it was", 9);
	bool good;
	(void)state;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	limit = before;
	limit.rlim_cur = 4096;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	good = npy_write(path, &npy, why);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_false(good);
	snprintf(expected, sizeof(expected), "%s cannot be written: File too large", path);
	assert_string_equal(why, expected);
	assert_int_equal(get_file(path, bytes), 9);
	assert_memory_equal(bytes, "as it was", 9);
	assert_int_equal(left_behind(), 0);
	assert_false(npy_write(path_of("no/such.npy"), &npy, why));
	snprintf(expected, sizeof(expected), "%s cannot be written: No such file or directory",
			 path_of("no/such.npy"));
	assert_string_equal(why, expected);
	assert_true(npy_write(path_of("full.npy"), &npy, why));
	assert_int_equal(left_behind(), 0);
}

static int make_directory(void **state)
{
	(void)state;
	return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
	static const char *const names[] = {"in.npy", "bad.npy", "out.npy", "full.npy"};
	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unlink(path_of(names[i]));
	return rmdir(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_type_is_read),
		cmocka_unit_test(every_format_and_form_is_read),
		cmocka_unit_test(fortran_order_is_turned),
		cmocka_unit_test(other_types_are_refused),
		cmocka_unit_test(other_headers_are_refused),
		cmocka_unit_test(wrong_sizes_are_refused),
		cmocka_unit_test(files_are_named),
		cmocka_unit_test(files_are_written_byte_for_byte),
		cmocka_unit_test(the_longest_header_has_room),
		cmocka_unit_test(names_are_long_and_links_stay),
		cmocka_unit_test(a_full_disk_leaves_nothing_behind),
	};
	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
