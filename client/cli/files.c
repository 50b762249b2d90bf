/*
 * files.c: reads arrays that --in names and writes those that --out names.
 */
#include "files.h"
#include "failure.h"
#include "table.h"
#include "values.h"

#include <stdlib.h>
#include <string.h>

/* ---- The options ---- */

/* Splits NAME=REST; NULL and a sentence if there is no '='.  what: names REST in the sentence. */
static const char *split(const char *option, const char *text, const char *what, char name[32])
{
	size_t length = strcspn(text, "=");

	if (!length || !text[length] || !text[length + 1] || length >= 32) {
		cli_usage("--%s '%s': expected NAME=%s, where NAME is an operand", option, text, what);
		return NULL;
	}
	memcpy(name, text, length);
	name[length] = 0;
	return text + length + 1;
}

static struct file *files_find(struct file *files, int count, const char *name)
{
	for (int i = 0; i < count; i++)
		if (!strcmp(files[i].name, name))
			return &files[i];
	return NULL;
}

static int read_names(const struct cli *cli, const char *option, struct file *files, int *count)
{
	const char *text;
	int at = 0;

	while ((text = cli_next(cli, option, &at))) {
		struct file *file = &files[*count];
		char name[32];
		const char *path = split(option, text, "FILE", name);
		const struct file *other = files_find(files, *count, name);
		if (!path)
			return CLI_USAGE;
		if (other)
			return cli_usage("--%s names %s twice: %s and %s", option, name, other->path, path);
		if (*count == KILN_MAX_OPERANDS)
			return cli_usage("--%s '%s': more than %d operands", option, text, KILN_MAX_OPERANDS);
		memcpy(file->name, name, sizeof(name));
		file->path = path;
		++*count;
	}
	return CLI_OK;
}

/* --dtype NAME=TYPE */
int files_read_dtypes(const struct cli *cli, struct files *files)
{
	const char *text;
	int at = 0, status = CLI_OK;

	while (!status && (text = cli_next(cli, "dtype", &at))) {
		char name[32];
		const char *dtype = split("dtype", text, "TYPE", name);
		struct file *file = dtype ? files_find(files->in, files->in_count, name) : NULL;
		if (!dtype)
			return CLI_USAGE;
		if (!file)
			return cli_usage("--dtype '%s': there is no --in %s=FILE whose type it could be", text,
							 name);
		status = files_check_dtype(file, "--dtype", dtype);
	}
	return status;
}

int files_read(const struct cli *cli, struct files *files)
{
	int status;

	memset(files, 0, sizeof(*files));
	status = read_names(cli, "in", files->in, &files->in_count);
	if (!status)
		status = read_names(cli, "out", files->out, &files->out_count);
	for (int i = 0; !status && i < files->out_count; i++)
		for (int j = 0; j < i; j++)
			if (!strcmp(files->out[i].path, files->out[j].path))
				return cli_usage("--out: %s and %s both go to %s", files->out[j].name,
								 files->out[i].name, files->out[i].path);
	for (int i = 0; !status && i < files->in_count; i++)
		status = files_load(cli, files->in[i].path, &files->in[i].array);
	return status;
}

void files_free(struct files *files)
{
	for (int i = 0; i < files->in_count; i++)
		free(files->in[i].array.data);
	memset(files, 0, sizeof(*files));
}

/* ---- Looking them up ---- */

struct file *files_in(struct files *files, const char *operand)
{
	return files ? files_find(files->in, files->in_count, operand) : NULL;
}

struct file *files_out(struct files *files, const char *operand)
{
	return files ? files_find(files->out, files->out_count, operand) : NULL;
}

kiln_tensor files_tensor(const struct file *file)
{
	kiln_tensor tensor = {.dtype = file->array.dtype, .rank = file->array.rank, .contiguous = 1};
	int64_t row = 1;

	for (int k = tensor.rank - 1; k >= 0; k--) {
		tensor.shape[k] = file->array.shape[k];
		tensor.stride[k] = row;
		row *= file->array.bytes ? tensor.shape[k] : 1;
	}
	return tensor;
}

int files_check_shape(const struct file *file, const char *option, const char *text)
{
	int64_t shape[KILN_MAX_RANK];
	char own[192];
	int rank, status = cli_dims(option, text, shape, &rank);

	if (status)
		return status;
	if (rank == file->array.rank &&
		!memcmp(shape, file->array.shape, (size_t)rank * sizeof(shape[0])))
		return CLI_OK;
	return cli_usage("%s '%s': %s comes from %s, which has %s", option, text, file->name,
					 file->path,
					 figure_dims(file->array.shape, file->array.rank, own, sizeof(own)));
}

int files_check_dtype(struct file *file, const char *option, const char *text)
{
	kiln_dtype dtype, own = file->array.dtype;
	int status = cli_dtype(option, text, &dtype);

	if (status)
		return status;
	if (dtype == own || (dtype == KILN_BF16 && own == KILN_U16) ||
		((dtype == KILN_F8E4M3 || dtype == KILN_F8E5M2) && own == KILN_U8)) {
		file->array.dtype = dtype;
		return CLI_OK;
	}
	return cli_usage("%s '%s': %s comes from %s, which has %s; only u16 can be taken for another "
					 "type, bf16, and u8 for f8e4m3 or f8e5m2",
					 option, text, file->name, file->path, kiln_dtype_name(own));
}

/* ---- Reading and writing ---- */

int files_load(const struct cli *cli, const char *path, struct npy *array)
{
	char why[NPY_WHY_MAX];

	if (npy_read(path, array, why))
		return CLI_OK;
	return cli_failed_here(cli, KILN_EIO, "%s: %s", cli->command->name, why);
}

int files_store(const struct cli *cli, const char *path, const struct npy *array)
{
	char why[NPY_WHY_MAX];

	if (npy_write(path, array, why))
		return CLI_OK;
	return cli_failed_here(cli, KILN_EIO, "%s: %s", cli->command->name, why);
}

int files_write(const struct cli *cli, const struct file *file, const kiln_tensor *tensor,
				void *data)
{
	struct npy array = {.dtype = tensor->dtype, .rank = tensor->rank};

	memcpy(array.shape, tensor->shape, sizeof(array.shape));
	array.bytes = kiln_dtype_size(tensor->dtype);
	for (int k = 0; k < tensor->rank; k++)
		array.bytes *= (uint64_t)tensor->shape[k];
	array.data = (uint8_t *)data + tensor->offset;
	return files_store(cli, file->path, &array);
}
