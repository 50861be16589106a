"""What a server does, counted from outside."""
