"""Programs changed into programs: the passes that know ops by name."""
