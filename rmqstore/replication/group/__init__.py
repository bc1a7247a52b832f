"""What a replica decides about its group: quorum, sync-state set, confirm offset, lease, epochs."""
