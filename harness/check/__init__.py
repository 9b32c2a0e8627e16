"""`sbd check`: what only a GPU can show, in one call; the same code on a CPU with tiny shapes. Composes, measures by runs."""
