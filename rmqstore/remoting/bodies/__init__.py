"""Bodies of requests and answers: one module for each family of request codes."""
