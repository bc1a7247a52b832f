"""The controller: it assigns broker ids, maintains sync-state sets and elects masters."""
