"""PerfLLM: learning the performance game from the text of programs (paper, section 3)."""
