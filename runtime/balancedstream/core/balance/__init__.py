"""How loads are measured and evened out: AutoFlow, and migration in small steps (Megaphone)."""
