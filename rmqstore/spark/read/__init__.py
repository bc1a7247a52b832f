"""Reading: the layout of a store, the tasks that read it, and the batches made of its bytes."""
