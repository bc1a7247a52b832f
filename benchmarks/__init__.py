"""How fast the store is, beside what the machine allows and what else there is; see README.md."""
