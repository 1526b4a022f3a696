"""What a balanced session and its queries are set up with."""
