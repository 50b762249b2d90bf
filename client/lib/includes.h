/*
 * includes: the headers that a source includes, found in folders as a compiler finds them, and
 * read.  No condition is evaluated: what any branch includes is sent, and the compiler takes what
 * it needs.  The compiler knows a header by one name and looks into no folder, so a directive that
 * says it in another way ("../x.h", or the second x.h of two folders) gets that name.
 *
 *   includes.c        walks over all that is included
 *   includes_find.c   looks for files and reads them
 *   includes_text.c   what one text includes and defines
 *   includes_macro.c  what an #include by a macro may name
 *   includes_keep.c   the memory of all that
 */
#ifndef KILN_CLIENT_INCLUDES_H
#define KILN_CLIENT_INCLUDES_H

#include <kiln/kiln.h>

struct includes;

/* Finds what raw includes in its folders.  ELIMIT, EINVAL, EIO, ENOMEM with a message. */
int includes_find(const kiln_raw *raw, struct includes **out);
/* Returns the source with all headers; it points into raw, too. */
const kiln_raw *includes_raw(const struct includes *found);
/* The source does not compile: adds to the message which header no folder has, if that is why. */
void includes_explain(const struct includes *found);
/* NULL is fine. */
void includes_free(struct includes *found);

#endif
