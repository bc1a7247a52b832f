/* task.h -- one call on a thread of its own, for a caller that must stay interruptible.
 *
 * A sync cannot be interrupted. A caller that has to handle signals meanwhile starts the call as a
 * task and waits for it in slices. It may also abandon the task: the call then runs to its end
 * without the caller.
 */
#ifndef RMQ_TASK_H
#define RMQ_TASK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct rmq_task;

/* The function of a task. Its subject and number are the caller's. */
typedef int rmq_task_work(void *subject, int64_t number, struct rmq_error *err);

/* RMQ_NO_MEMORY, RMQ_IO: there is no thread and nothing runs. The caller keeps the subject until
 * the task has ended. */
int rmq_task_start(struct rmq_task **task, rmq_task_work *work, void *subject, int64_t number,
                   struct rmq_error *err);
/* True once the call has returned. */
bool rmq_task_wait(struct rmq_task *task, int64_t timeout_ms);
/* Frees a task that has ended. Returns what the call returned. */
int rmq_task_finish(struct rmq_task *task, struct rmq_error *err);
/* Lets a task that may still run free itself at its end. */
void rmq_task_leave(struct rmq_task *task);

#endif
