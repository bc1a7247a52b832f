"""The examples and the code of the documents run."""
