"""What a store is after its process died, its disk failed or filled, or its files were damaged."""
