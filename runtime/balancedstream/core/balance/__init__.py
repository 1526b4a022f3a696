"""Measures loads and evens them out: AutoFlow, and migration in small steps (Megaphone)."""
