/* The event count, whose functions are inline, as functions that a test can call. */
#include "base/event.h"

uint32_t event_count_read(struct rmq_event_count *events);
void event_count_advance(struct rmq_event_count *events);
void event_count_await(struct rmq_event_count *events, uint32_t seen, int64_t timeout_us);

uint32_t event_count_read(struct rmq_event_count *events)
{
    return rmq_event_count_read(events);
}

void event_count_advance(struct rmq_event_count *events)
{
    rmq_event_count_advance(events);
}

void event_count_await(struct rmq_event_count *events, uint32_t seen, int64_t timeout_us)
{
    rmq_event_count_await(events, seen, timeout_us);
}
