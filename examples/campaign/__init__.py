"""A campaign: a letter to thousands of readers, each of whom gets it once, or is known not to have got it."""
