/*
 * reproduce: what a compiler was told when it made (or refused) a kernel, from its key: for those
 * who compile it once more without kilnd.
 */
#include "backend.h"

#include <string.h>

int compile_arguments(const char *key_text, compile_argument_visit visit, void *arg)
{
	struct compile_again again;
	char error[KERNEL_ERROR_MAX];
	int status = compile_again_open(key_text, "", &again, error);

	if (status != KILN_OK)
		return status;
	bool host = options_is_cpu(again.job.target), clang = strstr(again.toolchain, "clang") != NULL;
	const struct compile_option *option = host ? options_host : options_nvrtc;
	for (; option->text; option++)
		if (options_for_job(option, &again.job) && !(option->kind == OPTION_GCC && clang) &&
			!(option->kind == OPTION_CLANG && !clang))
			visit(arg, option->text, option->kind == OPTION_IF_KNOWN);
	for (int i = 0; i < again.job.option_count; i++)
		if (options_user_counts(again.job.options[i], again.job.target))
			visit(arg, again.job.options[i], false);
	compile_again_close(&again);
	return KILN_OK;
}
