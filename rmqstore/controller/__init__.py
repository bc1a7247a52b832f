"""The controller: it gives broker ids, keeps sync-state sets and elects masters."""
