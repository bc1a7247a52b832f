/* stress_board.h -- see stress_board.c. */
#ifndef STRESS_BOARD_H
#define STRESS_BOARD_H

#include "store/store.h"

/* Exits the process when something is wrong; returns how many puts were acknowledged. */
int64_t stress_board(struct rmq_store *store, int64_t puts);

#endif
