"""Custom headers: the extFields of requests and responses as frozen dataclasses.

`field` defines them; each other module holds the headers of one family of request codes.
"""
