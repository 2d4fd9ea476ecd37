"""HTTP: the gate before all routes, the routes without a framework, and all others."""
