"""The requests that a broker answers: one class for each family."""
