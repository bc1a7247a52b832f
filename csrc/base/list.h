/* list.h -- doubly linked lists whose members contain their links.
 *
 * A list is a ring of links. Its head is a link without a member, so the first and the last member
 * need no special case. Not locked.
 */
#ifndef RMQ_LIST_H
#define RMQ_LIST_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>

struct rmq_link {
    struct rmq_link *before, *after;
};

static inline void rmq_list_init(struct rmq_link *head)
{
    head->before = head->after = head;
}

static inline bool rmq_list_is_empty(const struct rmq_link *head)
{
    assert(head->after);
    return head->after == head;
}

/* Inserts link after `before`, which is the head or a member. */
static inline void rmq_list_insert(struct rmq_link *link, struct rmq_link *before)
{
    assert(before->after && before->after->before == before);

    link->before = before;
    link->after = before->after;
    link->after->before = link;
    before->after = link;
}

static inline void rmq_list_remove(struct rmq_link *link)
{
    assert(link->before->after == link && link->after->before == link);

    link->before->after = link->after;
    link->after->before = link->before;
    link->before = link->after = NULL;
}

#endif
