"""Controllers: gather facts through ports, let core decide, carry the steps out, record what came of it."""
