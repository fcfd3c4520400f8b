"""Pictures of rooflines: shapes that are drawn once, and written as SVG or PNG."""
