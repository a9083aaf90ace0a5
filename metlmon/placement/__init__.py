"""Where the next epochs should go: annexes, plans for chains and elastic runs, advice."""
