"""How work is spread: identities, chunks, pools of workers, progress."""
