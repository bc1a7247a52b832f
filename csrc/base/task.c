#include "base/task.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/event.h"

struct rmq_task {
    rmq_task_work *work;
    void *subject;
    int64_t number;
    int status;
    struct rmq_error error;
    struct rmq_event done;
    _Atomic int32_t owners; /* references: the thread and the caller */
};

static void disown(struct rmq_task *task)
{
    int32_t before = atomic_fetch_sub(&task->owners, 1);
    assert(before == 1 || before == 2);
    if (before == 1)
        free(task);
}

static void *run(void *argument)
{
    struct rmq_task *task = argument;
    assert(task->work && task->subject);
    task->status = task->work(task->subject, task->number, &task->error);
    rmq_event_set(&task->done);
    disown(task);
    return NULL;
}

int rmq_task_start(struct rmq_task **out, rmq_task_work *work, void *subject, int64_t number,
                   struct rmq_error *err)
{
    assert(work && subject);
    assert(out);

    struct rmq_task *task = calloc(1, sizeof *task);
    if (!task)
        return rmq_fail(err, RMQ_NO_MEMORY, -1, "no memory for a task");
    task->work = work;
    task->subject = subject;
    task->number = number;
    atomic_init(&task->owners, 2);

    pthread_t thread;
    int error = pthread_create(&thread, NULL, run, task);
    if (error) {
        free(task);
        return rmq_fail_os(err, error, "starting a thread");
    }
    (void)pthread_detach(thread);
    *out = task;
    return RMQ_OK;
}

bool rmq_task_wait(struct rmq_task *task, int64_t timeout_ms)
{
    assert(task);
    return rmq_event_wait(&task->done, timeout_ms);
}

int rmq_task_finish(struct rmq_task *task, struct rmq_error *err)
{
    assert(rmq_task_wait(task, 0));

    int status = task->status;
    if (status != RMQ_OK && err)
        *err = task->error;
    disown(task);
    return status;
}

void rmq_task_leave(struct rmq_task *task)
{
    assert(task);
    disown(task);
}
