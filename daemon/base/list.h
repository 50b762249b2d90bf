/*
 * list.h: doubly linked lists of structs with the members `previous` and `next`.  A list is a
 * pointer to its first item; a queue has a pointer to its last item as well.  NULL: it is empty.
 * The arguments have no side effects.  An item that is taken out has no neighbours.
 */
#ifndef KILN_DAEMON_LIST_H
#define KILN_DAEMON_LIST_H

#define LIST_PUSH(first, item)          \
	do {                                \
		(item)->previous = NULL;        \
		(item)->next = (first);         \
		if (first)                      \
			(first)->previous = (item); \
		(first) = (item);               \
	} while (0)

#define LIST_REMOVE(first, item)                       \
	do {                                               \
		if ((item)->previous)                          \
			(item)->previous->next = (item)->next;     \
		else                                           \
			(first) = (item)->next;                    \
		if ((item)->next)                              \
			(item)->next->previous = (item)->previous; \
		(item)->previous = (item)->next = NULL;        \
	} while (0)

#define QUEUE_PUSH(first, last, item) \
	do {                              \
		if (!(first))                 \
			(last) = (item);          \
		LIST_PUSH(first, item);       \
	} while (0)

#define QUEUE_APPEND(first, last, item) \
	do {                                \
		(item)->previous = (last);      \
		(item)->next = NULL;            \
		if (last)                       \
			(last)->next = (item);      \
		else                            \
			(first) = (item);           \
		(last) = (item);                \
	} while (0)

#define QUEUE_REMOVE(first, last, item) \
	do {                                \
		if (!(item)->next)              \
			(last) = (item)->previous;  \
		LIST_REMOVE(first, item);       \
	} while (0)

#endif
