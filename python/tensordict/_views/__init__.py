"""Views: containers whose entries are those of another one, seen at an index or with another batch size."""
