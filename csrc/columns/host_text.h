/* host_text.h -- hosts as columns show them; columns.h describes the form. */
#ifndef RMQ_HOST_TEXT_H
#define RMQ_HOST_TEXT_H

#include <stddef.h>

#include "format/record.h"

#define RMQ_HOST_TEXT_MAX (8 * 5 + 1 + 1 + 11)

/* Writes at most RMQ_HOST_TEXT_MAX characters without a NUL; returns how many. */
size_t rmq_host_text(const struct rmq_host *host, char *to);

#endif
