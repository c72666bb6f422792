"""gabion: a memory system."""
