/*
 * json.h: one JSON object of the command's own on standard output, member after member.  The
 * members of a list are objects.
 */
#ifndef KILN_CLI_JSON_H
#define KILN_CLI_JSON_H

#include <stdint.h>

void json_begin(void);
void json_list_begin(const char *name);
void json_list_end(void);
void json_item_begin(void);
void json_item_end(void);
void json_string(const char *name, const char *value);
void json_int(const char *name, int64_t value);
void json_real(const char *name, double value);   /* with three decimals */
void json_number(const char *name, double value); /* with 15 digits */
void json_ints(const char *name, const int64_t *values, int count);
void json_end(void);

#endif
