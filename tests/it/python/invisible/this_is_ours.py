"""A module to import again."""
