"""Transactional ids: producers, their epochs, and how transactions end."""
