/* gate.h -- shows a stream that its store was closed.
 *
 * An Arrow stream is read by its owner, on any thread, without knowing the store. Each step of the
 * stream goes through the store's gate. Either the step enters, and the store stays open until the
 * step leaves, or it fails because the store was closed. Reference-counted: the store holds one
 * reference, each stream one.
 */
#ifndef RMQ_GATE_H
#define RMQ_GATE_H

#include <stdbool.h>

struct rmq_gate;

/* One reference, the caller's; NULL without memory. */
struct rmq_gate *rmq_gate_create(void);
void rmq_gate_retain(struct rmq_gate *gate);
void rmq_gate_release(struct rmq_gate *gate);

/* False when the gate is closed. After true the caller must leave. Takes no lock. */
bool rmq_gate_enter(struct rmq_gate *gate);
void rmq_gate_leave(struct rmq_gate *gate);
/* True once closing has begun; callers inside should return soon. */
bool rmq_gate_is_closed(const struct rmq_gate *gate);

/* Refuses further callers, and returns when the last caller inside has left. A caller inside must
 * not call it. In a forked child it does not wait for threads of the parent. */
void rmq_gate_close(struct rmq_gate *gate);

#endif
